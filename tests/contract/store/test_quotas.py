"""Quotas: what calls of models may take is reserved before them and settled by the end of their turn."""

import asyncio
import time

import pytest
from turnwright.quotas.v1 import quota_service_pb2 as pb
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import usage_pb2
from turnwright_values.types import Tier

from contract.store.harness import (
    POSTGRESQL_ONLY,
    Client,
    act,
    as_tier,
    new_project,
    set_,
    start_store,
    working_run,
)
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.identity.caller import Caller, Kind

pytestmark = pytest.mark.asyncio

TOKENS, COST = pb.QUOTA_METRIC_TOKENS_MONTH, pb.QUOTA_METRIC_COST_MONTH
RUNS, COMMANDS = pb.QUOTA_METRIC_RUNS, pb.QUOTA_METRIC_COMMANDS_MINUTE


async def set_quota(client, limit, project="", metric=TOKENS, subject=""):
    quota = pb.Quota(metric=metric, limit=limit, subject=subject)
    return (await client.call("SetQuota", project=project, quota=quota)).quota


async def shown(client, project=""):
    """Used and reserved, by subject and metric."""
    found = (await client.call("ListQuotas", project=project)).quotas
    return {(one.subject, one.metric): (one.used, one.reserved) for one in found}


async def send(run, tokens, cost_usd=0.0, *, turn=1, again=False):
    """Store the packet of a turn, whose call may take so much."""
    messages = [] if again else [{"role": 1, "pieces": [{"text": "x"}]}]
    packet = write_pb2.PacketRecord(
        turn=turn, messages=messages, again=again, reserve_tokens=tokens, reserve_cost_usd=cost_usd
    )
    return await run.write(packet=packet)


async def refused(call):
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_a_call_reserves_what_it_may_take_until_its_turn_ends(client, run, project):
    await set_quota(client, 1000)
    await set_quota(client, 2, project, COST)
    await run.begin()
    await send(run, 600, 1.5)
    assert (await shown(client), await shown(client, project)) == ({("", TOKENS): (0, 600)}, {("", COST): (0, 1.5)})
    await run.end(1, usage=usage_pb2.Usage(total_tokens=70, cost_usd=0.25), lost_tokens=5, lost_cost_usd=0.5)
    assert (await shown(client), await shown(client, project)) == ({("", TOKENS): (75, 0)}, {("", COST): (0.75, 0)})


async def test_where_a_quota_has_no_room_nothing_is_stored_or_reserved(client, run, project):
    await set_quota(client, 10_000)
    await set_quota(client, 1000, subject=f"project:{project}")
    await run.begin()
    await send(run, 600)
    cursor = (await run.view()).cursor
    error = await refused(send(run, 401, again=True))
    found = {"metric": "tokens", "period": "month", "limit": "1000"}
    assert (error.reason, error.metadata) == (Reason.QUOTA_EXCEEDED, found)
    assert error.message.startswith(
        f"The project {project} has used 0 of 1000 tokens of this month, 600 are reserved for calls under way, and this "
        "one may take 401. The next month begins at "
    )
    assert error.message.endswith("00:00 UTC. An operator of the deployment can raise it with `turnwright quota set`.")
    assert await shown(client) == {("", TOKENS): (0, 600), (f"project:{project}", TOKENS): (0, 600)}
    assert (await run.view()).cursor == cursor
    await send(run, 400, again=True)
    assert (await shown(client))["", TOKENS] == (0, 1000)


async def test_an_error_has_no_figures_of_what_is_not_the_projects_own(client, run):
    await set_quota(client, 10)
    await run.begin()
    error = await refused(send(run, 11))
    assert error.message.startswith(
        "The deployment has no room left in its tokens of this month. The next month begins at "
    )
    assert error.metadata == {"metric": "tokens", "period": "month"}


async def test_a_project_is_under_its_own_quotas_and_those_of_the_deployment(client, run, project):
    other = await working_run(client, await new_project(client, "other"), "r1")
    await set_quota(client, 100, project)
    for one in (run, other):
        await one.begin()
    assert (await refused(send(run, 101))).metadata["limit"] == "100"
    await send(other, 101)
    assert await shown(client, project) == {("", TOKENS): (0, 0)}


async def test_a_loop_is_under_the_quotas_of_who_asked_for_it(server, client, run, project):
    await set_quota(client, 100, project, subject="user:alice")
    await set_quota(client, 1000, subject="user:operator")
    await run.begin()
    await send(run, 600)
    assert await shown(client, project) == {("user:alice", TOKENS): (0, 0)}
    assert await shown(client) == {("user:operator", TOKENS): (0, 600)}
    await run.end(1, loop=(200, "update", "Done."))
    alice = as_tier(server.address, Tier.CLIENT, "alice")
    await alice.call("EnqueueLoop", **run.address, prompt="x", settings=act())
    await alice.close()
    await run.claim()
    await run.begin()
    error = await refused(send(run, 101, turn=2))
    assert error.message.startswith(f"The user alice in {project} has used 0 of 100 tokens of this month, ")
    assert f"An owner of the project {project} can raise it" in error.message
    await send(run, 100, turn=2)
    assert await shown(client, project) == {("user:alice", TOKENS): (0, 100)}


async def test_a_quota_keeps_what_was_reserved_when_its_limit_changes_and_not_when_it_is_deleted(client, run):
    await set_quota(client, 100)
    await run.begin()
    await send(run, 100)
    changed = await set_quota(client, 50)
    assert (changed.limit, changed.reserved, changed.set_by) == (50, 100, "operator")
    assert changed.renew_time.ToMilliseconds() % (24 * 3600 * 1000) == 0
    await client.call("DeleteQuota", metric=TOKENS)
    assert await shown(client) == {}
    await set_quota(client, 100)
    await run.end(1, usage=usage_pb2.Usage(total_tokens=70))
    assert await shown(client) == {("", TOKENS): (0, 0)}


async def test_a_cost_that_is_not_known_needs_a_quota_that_is_not_used_up(client, run):
    await set_quota(client, 1, metric=COST)
    await run.begin()
    await send(run, 5)
    await run.end(1, usage=usage_pb2.Usage(total_tokens=5, cost_usd=1.0))
    await run.begin()
    assert (await refused(send(run, 5, turn=2))).reason is Reason.QUOTA_EXCEEDED


# Runs at once, and commands a minute


async def task(client, project, run, **more):
    return await client.call("EnqueueLoop", project=project, run=run, prompt="x", settings=act(), **more)


async def test_a_task_for_another_run_is_refused_while_as_many_are_at_work(server, client, project):
    await set_quota(client, 2, project, RUNS, "user:alice")
    alice = as_tier(server.address, Tier.CLIENT, "alice")
    for name in ("r1", "r2", "r2"):
        await task(alice, project, name)
    error = await refused(task(alice, project, "r3"))
    assert (error.reason, error.metadata) == (Reason.QUOTA_EXCEEDED, {"metric": "runs", "period": "", "limit": "2"})
    assert error.message == (
        f"The user alice in {project} has used 2 of 2 runs at once. There is room once one of them has ended. An owner of the "
        f"project {project} can raise it with `turnwright quota set`."
    )
    await task(client, project, "r3")
    (found,) = (await client.call("ListQuotas", project=project)).quotas
    assert (found.used, found.HasField("renew_time")) == (2, False)
    await client.call("CancelCommand", project=project, run="r1", loop=1)
    await task(alice, project, "r4")
    await alice.close()


def caller_of(address, name, groups=()):
    """An executor that carries out what somebody has called."""
    caller = Caller(name, Kind.PERSON, Tier.CLIENT, groups=frozenset(groups))
    return Client(address, caller=caller.answered_for())


async def called(client, run, name):
    await client.call("WriteEntries", **run.address, writes=[set_(f"log://call_{name}/think/x", "x")])


async def test_a_command_beyond_those_of_its_minute_is_refused_until_the_next(server, client, run):
    await set_quota(client, 0, metric=COMMANDS, subject="group:shop")
    alice, bob = caller_of(server.address, "alice", ["shop"]), caller_of(server.address, "bob")
    error = await refused(called(alice, run, "a"))
    assert (error.reason, error.metadata) == (Reason.QUOTA_EXCEEDED, {"metric": "commands", "period": "minute"})
    assert "The group shop has no room left in its commands of this minute. The next minute begins at " in error.message
    await called(bob, run, "b")
    assert await shown(client) == {("group:shop", COMMANDS): (0, 0)}
    for one in (alice, bob):
        await one.close()


@POSTGRESQL_ONLY
async def test_no_replicas_pass_a_limit_together(server, client, run, project, tmp_path):
    most, tried = 20, 60
    await set_quota(client, most, project, COMMANDS)
    await set_quota(client, most + 1, project, RUNS)
    others = [await start_store(tmp_path, name) for name in ("b", "c")]
    stores = [server, *others]
    callers = [caller_of(store.address, "alice") for store in stores]
    clients = [Client(store.address) for store in stores]
    begun_s = time.time()
    calls = [called(callers[number % 3], run, str(number)) for number in range(tried)]
    tasks = [task(clients[number % 3], project, f"t{number}") for number in range(tried)]
    answers = await asyncio.gather(*calls, *tasks, return_exceptions=True)
    minutes = int(time.time() // 60 - begun_s // 60) + 1
    failures = [one for one in answers if isinstance(one, BaseException)]
    assert {one.reason for one in failures} == {Reason.QUOTA_EXCEEDED}
    done = [sum(not isinstance(one, BaseException) for one in part) for part in (answers[:tried], answers[tried:])]
    # The run of the fixture is at work, too.
    assert most <= done[0] <= most * minutes
    assert done[1] == most
    for one in (*callers, *clients):
        await one.close()
    for store in others:
        await store.stop()


MALFORMED = {
    "negative": ({"limit": -1.0, "metric": TOKENS}, "quota.limit"),
    "no number": ({"limit": float("nan"), "metric": TOKENS}, "quota.limit"),
    "too high": ({"limit": 1e13, "metric": TOKENS}, "quota.limit"),
    "of nothing": ({"limit": 1.0}, "metric"),
    "no kind": ({"limit": 1.0, "metric": TOKENS, "subject": "bob"}, "quota.subject"),
    "of another project": ({"limit": 1.0, "metric": TOKENS, "subject": "project:other"}, "quota.subject"),
    "two lines": ({"limit": 1.0, "metric": TOKENS, "subject": "user:a\nb"}, "quota.subject"),
}


@pytest.mark.parametrize("kind", MALFORMED)
async def test_a_malformed_quota_is_refused(client, project, kind):
    fields, field = MALFORMED[kind]
    error = await refused(client.call("SetQuota", project=project, quota=pb.Quota(**fields)))
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, field)
    assert await shown(client, project) == {}


async def test_a_quota_that_is_not_there_cannot_be_deleted(client, project):
    error = await refused(client.call("DeleteQuota", project=project, metric=TOKENS, subject="user:bob"))
    assert error.reason is Reason.ENTRY_NOT_FOUND
