"""The queue: which runs have work, in which order they are taken, and that each is taken once."""

import asyncio
from datetime import timedelta
from itertools import groupby

import pytest
import pytest_asyncio

from contract.store.harness import POSTGRESQL_ONLY, PROPOSED, Client, Run, act, new_project, new_run, set_, start_store
from contract.store.watcher import Watcher
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def queued(client, project: str, count: int) -> list[str]:
    """So many runs with one queued loop each, the first one waits longest."""
    return [
        (
            await client.call("EnqueueLoop", project=project, run=f"{project}-{number}", prompt="a", settings=act())
        ).run.run
        for number in range(count)
    ]


async def listed(client, **fields) -> list[str]:
    return [run.run for run in (await client.call("ListWork", **fields)).runs]


async def take(client, owner="owner", limit=1, **fields) -> list[Run]:
    """Claimed runs, with their epochs."""
    answer = await client.call("ClaimWork", owner=owner, address="here:1", limit=limit, **fields)
    return [Run(client, claim.run.project, claim.run.run, claim.epoch) for claim in answer.claims]


async def release(run: Run):
    await run.client.call("ReleaseRun", **run.address, epoch=run.epoch)


# ---- What has work


async def test_work_is_a_queued_loop_a_left_one_or_a_decision_to_carry_out(client, project):
    idle = await new_run(client, project, "idle")
    left, waiting, decided, waits = [
        await new_run(client, project, name) for name in ("left", "waiting", "decided", "queued")
    ]
    for run in (left, waiting, decided):
        await run.enqueue()
        await run.claim()
    for run in (waiting, decided):
        await run.begin()
        await run.write(set_("log://turn_1/sh/x", "", "{}", state=PROPOSED), run_status=202)
    await client.call("ResolveProposal", **decided.address, path="log://turn_1/sh/x", accept={})
    await waits.enqueue()
    assert await listed(client) == ["queued"]
    for run in (left, waiting, decided):
        await release(run)
    assert await listed(client) == ["left", "decided", "queued"]
    assert (await idle.get()).status == 100


async def test_a_held_run_is_no_work_whatever_is_queued_behind(client, run):
    await run.enqueue("behind")
    assert await listed(client) == []
    assert await take(client, "another") == []
    assert await listed(client, with_held=True) == ["r1"]
    await release(run)
    assert await listed(client) == ["r1"]


async def test_a_run_of_a_dead_executor_is_work_again(client, project):
    run = await new_run(client, project, "r")
    await run.enqueue()
    await run.claim("dead", lease_duration=timedelta(milliseconds=100))
    await asyncio.sleep(1.2)
    taken = await take(client, "alive")
    assert [(one.alias, one.epoch) for one in taken] == [("r", 2)]


async def test_a_claim_of_work_is_a_whole_claim(client, project):
    await queued(client, project, 1)
    answer = await client.call("ClaimWork", owner="me", address="here:1", lease_duration=timedelta(milliseconds=5000))
    (claim,) = answer.claims
    assert (claim.loop.status, claim.run.status, claim.run.loops_queued) == (102, 102, 0)
    assert (claim.model.vendor_model, claim.project_root, claim.lease_duration.seconds) == (
        "scripted/a",
        "/srv/demo",
        5,
    )
    run = Run(client, project, claim.run.run, claim.epoch)
    assert (await run.begin()).next.number == 1
    error = await refused(Run(client, project, claim.run.run).claim("other"))
    assert (error.reason, error.metadata["owner"]) == (Reason.LEASE_HELD, "me")


# ---- Order


async def test_the_run_that_waits_longest_is_first(client, project):
    names = await queued(client, project, 5)
    assert await listed(client) == names
    assert [run.alias for run in await take(client, limit=3)] == names[:3]
    assert await listed(client) == names[3:]


async def test_projects_take_turns(client):
    for name in ("a", "b", "c"):
        await queued(client, await new_project(client, name), 3)
    assert [name.partition("-")[0] for name in await listed(client)] == ["a", "b", "c"] * 3


@pytest.mark.parametrize("db", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)], indirect=True)
async def test_a_thousand_runs_of_one_project_do_not_delay_another_ones(client):
    """Fair between projects, whatever was queued first and however many are worked on."""
    crowd, lone = await new_project(client, "crowd"), await new_project(client, "lone")
    await queued(client, crowd, 1000)
    await queued(client, lone, 1)
    assert [run.project for run in await take(client, limit=2)] == ["crowd", "lone"]
    await queued(client, lone, 2)
    busy = [run.project for run in await take(client, limit=20)]
    assert busy[:2] == ["crowd", "lone"] or busy[:1] == ["lone"]
    assert busy.count("lone") == 1


async def test_a_project_with_fewer_runs_under_way_is_first(client):
    busy, calm = await new_project(client, "busy"), await new_project(client, "calm")
    await queued(client, busy, 6)
    assert [run.project for run in await take(client, limit=4)] == ["busy"] * 4
    await queued(client, calm, 5)
    turns = [key for key, _ in groupby(name.partition("-")[0] for name in await listed(client))]
    assert turns[0] == "calm"
    assert [run.project for run in await take(client, limit=4)] == ["calm"] * 4


async def test_loops_of_a_run_stay_in_order_and_one_is_active(client, project):
    """RU109, RU110."""
    run = await new_run(client, project, "r")
    for prompt in ("one", "two"):
        await run.enqueue(prompt)
    for prompt in ("one", "two"):
        (taken,) = await take(client, limit=5)
        assert await take(client, "other", limit=5) == []
        assert (await taken.get()).loop.prompt == prompt
        await taken.end(0, loop=(200, "update", prompt))
        await release(taken)
    assert await take(client) == []


# ---- Races


async def test_executors_that_claim_at_once_never_get_the_same_run(client, project):
    names = await queued(client, project, 40)
    rounds = await asyncio.gather(*(take(client, f"owner-{number}", limit=8) for number in range(10)))
    taken = [run.alias for part in rounds for run in part]
    while more := await take(client, "last", limit=8):
        taken += [run.alias for run in more]
    assert sorted(taken) == sorted(names)


@POSTGRESQL_ONLY
async def test_executors_of_two_replicas_that_claim_at_once_never_get_the_same_run(tmp_path, server, client, project):
    """Only PostgreSQL has replicas: each run is locked before it is read for real."""
    replica = await start_store(tmp_path, "second")
    other = Client(replica.address)
    names = await queued(client, project, 40)
    stores = (client, other) * 5
    rounds = await asyncio.gather(
        *(take(store, f"owner-{number}", limit=6) for number, store in enumerate(stores)),
        *(Run(store, project, names[0]).claim(f"single-{number}") for number, store in enumerate(stores)),
        return_exceptions=True,
    )
    singles = [names[0] for one in rounds[10:] if not isinstance(one, Exception)]
    taken = [run.alias for part in rounds[:10] for run in part] + singles
    while more := await take(other, "last", limit=8):
        taken += [run.alias for run in more]
    assert sorted(taken) == sorted(names)
    await other.close()
    await replica.stop()


async def test_many_runs_are_worked_on_at_once(client, project):
    await queued(client, project, 30)
    taken = await take(client, limit=30)
    turns = await asyncio.gather(*(run.begin() for run in taken))
    assert [begun.next.number for begun in turns] == [1] * 30


# ---- Workspaces


async def test_only_runs_of_the_named_workspaces_are_offered(client):
    for name in ("a", "b"):
        await queued(client, await new_project(client, name), 2)
    assert await listed(client, workspace_ids=["ws-b", "ws-none"]) == ["b-0", "b-1"]
    assert [run.project for run in await take(client, limit=9, workspace_ids=["ws-a"])] == ["a", "a"]
    assert await take(client, workspace_ids=["ws-none"]) == []
    assert [run.project for run in await take(client, limit=9)] == ["b", "b"]


async def reason_of(run: Run) -> str:
    return (await run.get()).loop.reason


async def until_said(run: Run, reason: str) -> None:
    for _ in range(3000):
        if await reason_of(run) == reason:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"the loop never said {reason!r}, but {await reason_of(run)!r}")


@pytest_asyncio.fixture
async def impatient(tmp_path):
    home = tmp_path / "impatient"
    home.mkdir()
    server = await start_store(home, workspace_wait_s=0.1, lease_grace_s=0.05)
    client = Client(server.address)
    yield client
    await client.close()
    await server.stop()


async def stranded_run(client) -> Run:
    run = await new_run(client, await new_project(client), "r")
    await client.call(
        "RenewLeases",
        owner="e",
        address="here:1",
        workspace_ids=["ws-other"],
        lease_duration=timedelta(milliseconds=60_000),
    )
    await run.enqueue()
    await run.enqueue()
    return run


async def test_a_loop_whose_workspace_nobody_has_says_so_until_it_is_claimed(impatient):
    run = await stranded_run(impatient)
    before = (await run.enqueue()).run
    await until_said(run, "workspace_unavailable")
    now = await run.get()
    assert (now.revision > before.revision, now.status, now.loop.status) == (True, 100, 100)
    claimed = await run.claim()
    assert (claimed.loop.status, claimed.loop.reason) == (102, "")
    loops = (await impatient.call("ListLoops", **run.address)).loops
    assert [loop.reason for loop in loops] == [""] * 3


async def test_followers_hear_of_each_loop_that_need_not_wait_any_more(impatient):
    run = await stranded_run(impatient)
    await until_said(run, "workspace_unavailable")
    watcher = Watcher(run, after=(await run.view()).cursor)
    await watcher.next()
    await run.claim()
    await watcher.until((await run.view()).cursor)
    assert sorted((loop.sequence, loop.reason) for loop in watcher.loops) == [(1, ""), (2, "")]
    await watcher.close()


async def test_a_loop_says_it_once(impatient):
    run = await stranded_run(impatient)
    await until_said(run, "workspace_unavailable")
    before = await run.get()
    await asyncio.sleep(0.3)
    assert await run.get() == before


@pytest.mark.parametrize("offered", [["ws-demo"], []], ids=["its-own", "any"])
async def test_a_loop_whose_workspace_somebody_has_waits_without_a_word(impatient, offered):
    run = await new_run(impatient, await new_project(impatient), "r")
    await impatient.call(
        "RenewLeases", owner="e", workspace_ids=["ws-other"], lease_duration=timedelta(milliseconds=60_000)
    )
    await impatient.call("RenewLeases", owner="f", workspace_ids=offered, lease_duration=timedelta(milliseconds=60_000))
    await run.enqueue()
    await asyncio.sleep(0.4)
    assert await reason_of(run) == ""


async def test_a_store_without_workspaces_says_nothing(impatient):
    run = await new_run(impatient, await new_project(impatient), "r")
    await run.enqueue()
    await asyncio.sleep(0.4)
    assert await reason_of(run) == ""


async def test_an_executor_that_has_ended_offers_nothing(impatient):
    run = await new_run(impatient, await new_project(impatient), "r")
    await impatient.call(
        "RenewLeases", owner="e", workspace_ids=["ws-demo"], lease_duration=timedelta(milliseconds=100)
    )
    await run.enqueue()
    await until_said(run, "workspace_unavailable")
    assert (await run.claim()).loop.reason == ""


# ---- Limits


@pytest.mark.parametrize(
    ("rpc", "fields", "field"),
    [
        ("ClaimWork", {"owner": "me", "limit": 101}, "limit"),
        ("ClaimWork", {"owner": ""}, "owner"),
        ("ClaimWork", {"owner": "me", "workspace_ids": ["x"] * 10_001}, "workspace_ids"),
        ("ListWork", {"page_size": 1001}, "page_size"),
        ("ListWork", {"workspace_ids": ["x" * 129]}, "workspace_ids"),
    ],
)
async def test_the_queue_has_limits(client, rpc, fields, field):
    assert (await refused(client.call(rpc, **fields))).metadata["field"] == field
