"""A loop works for somebody: what that person may not do any more, or who accepted it, does not happen."""

from __future__ import annotations

from datetime import timedelta

import pytest
import pytest_asyncio
from turnwright.types.v1 import access_pb2, grant_pb2, rule_pb2, settings_pb2
from turnwright_values.types import Tier

from contract.executor.proposing import DONE, GO_ON, person
from contract.executor.test_grants import WAITS, begun, ran
from contract.executor.watcher import Watcher
from contract.store.harness import Client as StoreClient
from services import SECRET
from turnwright_kit.identity.caller import Caller, Kind

pytestmark = pytest.mark.asyncio

SH, SH_PATH = "<sh>echo 1 >> ran.txt</sh>", "log://turn_1/sh/echo_1_%3E%3E_ran.txt"
EFFECTS = {
    "a command": (SH, SH_PATH, access_pb2.RIGHT_COMMAND),
    "a file": ('<set path="ran.txt">1\n</set>', "log://turn_1/set/ran.txt", access_pb2.RIGHT_FILES),
}


@pytest_asyncio.fixture
async def team(services):
    """A project of ann and bob, and of nobody else without the secret."""
    for name in ("ann", "bob"):
        await services.client.set_grant(services.project, f"user:{name}", grant_pb2.GRANT_ROLE_MEMBER)
    await services.client.delete_grant(services.project, "*")
    return services


async def without(team, name: str, *rights) -> None:
    """Leave these rights out of somebody's grant; none: take it away."""
    if rights:
        await team.client.set_grant(team.project, f"user:{name}", grant_pb2.GRANT_ROLE_MEMBER, rights)
    else:
        await team.client.delete_grant(team.project, f"user:{name}")


async def asked(team, *replies: str, **settings):
    """A loop of ann's."""
    team.script(*replies)
    wanted = settings_pb2.LoopSettings(**{"model": "m", "yolo": True, **settings})
    async with person(team, "ann") as ann:
        return await ann.act(team.project, "Do it.", run="r", settings=wanted)


def go_on(team) -> None:
    (team.files / "go").touch()


@pytest.mark.parametrize("effect", EFFECTS)
async def test_yolo_asks_once_its_person_may_not_do_such_things(team, effect):
    reply, path, right = EFFECTS[effect]
    queued = await asked(team, WAITS + reply, DONE)
    await begun(team)
    await without(team, "ann", right)
    go_on(team)
    await team.until(queued, 202)
    assert not ran(team)
    async with person(team, "bob") as bob:
        await bob.resolve(team.project, "r", path, accept=True)
    await team.until(queued)
    assert ran(team)


async def test_a_loop_whose_person_may_have_nothing_run_ends_and_refuses_what_is_left(team):
    queued = await asked(team, WAITS + SH, DONE)
    await begun(team)
    await without(team, "ann")
    go_on(team)
    loop = await team.until(queued)
    entry = await team.entry(SH_PATH)
    assert (loop.status, loop.reason.partition(":")[0]) == (499, "right_missing")
    assert "ann has asked for this loop, and does not have `run`" in loop.reason
    assert (entry.outcome, "ann has asked for this loop" in entry.body, ran(team)) == ("rejected:403", True, False)


@pytest.mark.parametrize("right", [access_pb2.RIGHT_COMMAND, None], ids=["to run commands", "to do anything"])
async def test_what_somebody_accepted_who_may_not_any_more_does_not_happen_also_after_a_restart(team, right):
    queued = await asked(team, SH, DONE, yolo=False)
    await team.until(queued, 202)
    await team.stop("executor")
    key, without_it = (
        {"project": team.project},
        {"subject": "user:bob", "role": "GRANT_ROLE_MEMBER", "without": [right]},
    )
    for name, calls in (
        ("bob", [("ResolveProposal", {**key, "run": "r", "path": SH_PATH, "accept": {}})]),
        (
            "",
            [("SetGrant", {**key, "grant": without_it}) if right else ("DeleteGrant", {**key, "subject": "user:bob"})],
        ),
    ):
        at_store = StoreClient(
            team.addresses["store"], SECRET, caller=Caller(name, Kind.PERSON, Tier.CLIENT) if name else None
        )
        for rpc, fields in calls:
            await at_store.call(rpc, **fields)
        await at_store.close()
    await team.stop("store")
    await team.start("store")
    await team.start("executor")
    await team.client.wait_loop(team.project, "r", 1)
    entry = await team.entry(SH_PATH)
    assert (entry.outcome, "bob has accepted this" in entry.body, ran(team)) == ("rejected:403", True, False)


async def test_a_loop_that_waits_in_the_queue_calls_no_model_for_who_has_left(team):
    async with person(team, "bob") as bob:
        team.script(WAITS + DONE)
        settings = settings_pb2.LoopSettings(model="m", yolo=True)
        first = await bob.act(team.project, "Do it.", run="r", settings=settings)
        await begun(team)
        second = await asked(team, WAITS + DONE, SH + DONE)
        await without(team, "ann")
        go_on(team)
        assert (await team.until(first)).status == 200
        loop = await team.until(second)
    assert (loop.status, loop.reason.partition(":")[0], ran(team)) == (499, "right_missing", False)
    assert loop.usage.total_tokens == 0


async def test_a_schedule_begins_no_loop_for_who_has_left(team):
    await team.client.set_grant(team.project, "user:ann", grant_pb2.GRANT_ROLE_OWNER)
    async with person(team, "ann") as ann:
        await ann.create_run(team.project, "r", settings_pb2.RunSettings(model="m"))
        async with Watcher(team) as watcher:
            settings = settings_pb2.LoopSettings(model="m")
            await ann.set_schedule(
                team.project, "r", "soon", every=timedelta(seconds=1), prompt="Look.", settings=settings
            )
            await without(team, "ann", access_pb2.RIGHT_RUN)
            told = await watcher.until(lambda event: "ann has set this" in event.message_added.entry.body)
    assert "does not have `run`" in told.message_added.entry.body


async def test_a_rule_of_the_project_lets_commands_run_for_who_may_accept_none(team):
    await without(team, "ann", access_pb2.RIGHT_COMMAND)
    rule = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW, tool="sh", target="touch ran.txt")
    await team.client.set_rule(team.project, rule)
    loop = await team.until(await asked(team, f"<sh>touch ran.txt</sh>{DONE}", yolo=False))
    assert (loop.status, ran(team)) == (200, True)


async def test_a_rule_of_the_run_lets_none_run_for_who_may_accept_none(team):
    async with person(team, "bob") as bob:
        await bob.create_run(team.project, "r", settings_pb2.RunSettings(model="m"))
        rule = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW, tool="sh", target="touch ran.txt")
        await bob.set_rule(team.project, rule, "r")
    await without(team, "ann", access_pb2.RIGHT_COMMAND)
    await team.until(await asked(team, f"<sh>touch ran.txt</sh>{GO_ON}", DONE, yolo=False), 202)
    assert not ran(team)
