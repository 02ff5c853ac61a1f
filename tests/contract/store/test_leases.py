"""Leases: one owner at a time, told by epochs, on the database's clock."""

import asyncio
import time
from datetime import timedelta

import pytest
from turnwright.store.v1 import lease_pb2

from contract.store.harness import (
    LEASE_S,
    POSTGRESQL_ONLY,
    PROPOSED,
    RECORDED,
    SQLITE_ONLY,
    Client,
    Run,
    new_project,
    new_run,
    set_,
    start_store,
    working_run,
)
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def until_free(run: Run, owner: str):
    """The claim of another owner, as soon as it is let."""
    for _ in range(3000):
        try:
            return await run.claim(owner)
        except TurnwrightError as error:
            assert error.reason is Reason.LEASE_HELD  # noqa: PT017 - what it is refused with meanwhile
            await asyncio.sleep(0.02)
    raise AssertionError("the lease did not pass")


async def renew(client, *held: Run, owner="owner", **more):
    leases = [lease_pb2.Lease(**run.address, epoch=run.epoch) for run in held]
    return await client.call("RenewLeases", owner=owner, address="here:1", leases=leases, **more)


def states(answer) -> list[tuple[str, bool, bool]]:
    return [(state.lease.run, state.held, state.abort_requested) for state in answer.states]


async def release(run: Run):
    return await run.client.call("ReleaseRun", **run.address, epoch=run.epoch)


# ---- Claims


@pytest.fixture
def brief_grace(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_LEASE_GRACE_S", "0")


@pytest.fixture
def long_grace(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_LEASE_GRACE_S", "60")


async def test_a_held_run_is_refused_to_others_with_who_holds_it(long_grace, client, project):
    run = await new_run(client, project, "r")
    held = await run.claim("first", lease_duration=timedelta(milliseconds=60_000))
    error = await refused(Run(client, project, "r").claim("second"))
    expires_in_ms = int(error.metadata.pop("expires_in_ms"))
    assert (error.reason, error.metadata) == (Reason.LEASE_HELD, {"run": "r", "owner": "first", "address": "here:1"})
    assert 60_000 < expires_in_ms <= 120_000
    assert (held.lease_duration.seconds, held.epoch) == (60, 1)


async def test_the_same_owner_claims_again_under_a_new_epoch(client, project):
    run = await new_run(client, project, "r")
    epochs = [(await run.claim()).epoch for _ in range(3)]
    assert epochs == [1, 2, 3]


async def test_a_claim_that_names_no_length_gets_the_stores(client, project):
    assert (await (await new_run(client, project)).claim()).lease_duration.seconds == LEASE_S


@pytest.mark.parametrize(("lease_ms", "is_allowed"), [(99, False), (100, True), (3_600_000, True), (3_600_001, False)])
async def test_a_lease_has_bounds(client, project, lease_ms, is_allowed):
    lease = timedelta(milliseconds=lease_ms)
    run = await new_run(client, project)
    if is_allowed:
        assert (await run.claim(lease_duration=lease)).lease_duration.ToTimedelta() == lease
        return
    error = await refused(run.claim(lease_duration=lease))
    assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "lease_duration"})


async def test_a_run_is_free_once_its_lease_and_the_grace_have_passed(client, project):
    run = await new_run(client, project, "r")
    began_s = time.monotonic()
    await run.claim("first", lease_duration=timedelta(milliseconds=300))
    other = Run(client, project, "r")
    await until_free(other, "second")
    assert time.monotonic() - began_s >= 1.3
    assert other.epoch == run.epoch + 1


async def test_an_expired_owner_whom_nobody_followed_loses_nothing(client, project):
    run = await new_run(client, project, "r")
    await run.enqueue()
    await run.claim(lease_duration=timedelta(milliseconds=100))
    await asyncio.sleep(0.15)
    assert (await run.begin()).next.number == 1
    assert states(await renew(client, run)) == [("r", True, False)]


# ---- Epochs


async def fenced_calls(run: Run):
    await run.begin()
    return {
        "begin": lambda stale: stale.begin(),
        "WriteEntries": lambda stale: stale.write(set_("known://a", "x")),
        "status": lambda stale: stale.write(run_status=202),
        "EndTurn": lambda stale: stale.end(1),
        "ReleaseRun": release,
    }


async def test_a_stale_epoch_is_refused_on_every_write(client, run):
    calls = await fenced_calls(run)
    stale = Run(client, run.project, run.alias, run.epoch)
    await release(run)
    await run.claim("second")
    for call in calls.values():
        error = await refused(call(stale))
        assert (error.reason, error.metadata) == (Reason.LEASE_LOST, {"run": "r1", "epoch": str(run.epoch)})
    assert await run.entry("known://a") is None
    assert (await run.end(1)).run.turn == 1


async def test_a_run_is_given_back_with_the_end_of_its_last_loop(client, project):
    run = await new_run(client, project, "r")
    await run.enqueue()
    await run.claim("first", lease_duration=timedelta(milliseconds=60_000))
    await run.begin()
    assert (await run.end(1, loop=(200, "", ""), release=True)).released
    await Run(client, project, "r").claim("second")


@pytest.mark.parametrize("loop", [(200, "", ""), None])
async def test_a_run_stays_with_its_owner_while_it_has_work(client, project, loop):
    run = await new_run(client, project, "r")
    await run.enqueue()
    await run.enqueue()
    await run.claim("first", lease_duration=timedelta(milliseconds=60_000))
    await run.begin()
    assert not (await run.end(1, loop=loop, release=True)).released
    error = await refused(Run(client, project, "r").claim("second"))
    assert error.reason is Reason.LEASE_HELD


async def test_of_two_owners_that_race_for_an_expired_run_one_gets_it(client, project):
    run = await new_run(client, project, "r")
    await run.enqueue()
    claims = await asyncio.gather(
        *(Run(client, project, "r").claim(f"owner-{number}") for number in range(8)), return_exceptions=True
    )
    won = [claim for claim in claims if not isinstance(claim, Exception)]
    assert len(won) == 1
    assert {claim.reason for claim in claims if isinstance(claim, TurnwrightError)} == {Reason.LEASE_HELD}


# ---- Release


async def test_a_released_run_is_free_at_once(client, run):
    await release(run)
    other = Run(client, run.project, run.alias)
    assert (await other.claim("second")).loop.status == 102
    assert (await refused(release(run))).reason is Reason.LEASE_LOST


async def test_a_release_can_be_repeated(client, run):
    await release(run)
    await release(run)
    assert states(await renew(client, run)) == [("r1", False, False)]


# ---- Renewals


async def test_a_renewed_lease_outlives_its_term(brief_grace, client, project):
    run = await new_run(client, project, "r")
    await run.claim("first", lease_duration=timedelta(milliseconds=100))
    assert states(await renew(client, run, owner="first", lease_duration=timedelta(milliseconds=60_000))) == [
        ("r", True, False)
    ]
    await asyncio.sleep(0.15)
    assert (await refused(Run(client, project, "r").claim("second"))).reason is Reason.LEASE_HELD


async def test_a_renewal_tells_each_lease_by_itself(client, project):
    kept, lost, aborted, stale = [await working_run(client, project, name) for name in ("k", "l", "a", "s")]
    gone = Run(client, project, "nobody", 1)
    await client.call("AbortRun", **aborted.address)
    await release(lost)
    await Run(client, project, "l").claim("second")
    before = stale.epoch
    await stale.claim()
    stale.epoch = before
    answer = await renew(client, kept, lost, aborted, stale, gone)
    assert states(answer) == [
        ("k", True, False), ("l", False, False), ("a", True, True), ("s", False, False), ("nobody", False, False),
    ]  # fmt: skip
    assert answer.lease_duration.seconds == LEASE_S


async def test_nobody_renews_what_another_holds(client, run):
    assert states(await renew(client, run, owner="somebody else")) == [("r1", False, False)]


async def test_a_renewal_raises_no_revision(client, run):
    before = await run.view()
    await renew(client, run, workspace_ids=["ws"])
    after = await run.view()
    assert (after.cursor, await run.get()) == (before.cursor, (await run.get()))
    assert (await run.get()).revision == before.cursor.run_revision


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"owner": ""}, "owner"),
        ({"owner": "x" * 129}, "owner"),
        ({"workspace_ids": ["w"] * 10_001}, "workspace_ids"),
        ({"workspace_ids": ["x" * 129]}, "workspace_ids"),
        ({"leases": [lease_pb2.Lease(run="r")] * 10_001}, "leases"),
        ({"lease_duration": timedelta(milliseconds=1)}, "lease_duration"),
    ],
)
async def test_a_renewal_has_limits(client, fields, field):
    assert (await refused(client.call("RenewLeases", **{"owner": "me"} | fields))).metadata["field"] == field


# ---- The store's start


async def test_leases_outlive_a_restart(tmp_path):
    assert await claim_after_restart(tmp_path / "a", sole_executor=False) is Reason.LEASE_HELD


@SQLITE_ONLY
async def test_a_store_whose_executors_end_with_it_frees_every_run_at_its_start(tmp_path):
    """A file has one store, so that its executors can be known to have ended."""
    assert await claim_after_restart(tmp_path / "b", sole_executor=True) is None


@POSTGRESQL_ONLY
async def test_a_store_never_frees_the_runs_of_a_database_that_others_use(tmp_path):
    """Other executors of a server go on whatever this store's do."""
    assert await claim_after_restart(tmp_path / "c", sole_executor=True) is Reason.LEASE_HELD


async def claim_after_restart(home, **settings) -> Reason | None:
    home.mkdir()
    server = await start_store(home, **settings)
    client = Client(server.address)
    run = await working_run(client, await new_project(client), "r")
    await client.close()
    await server.stop()

    server = await start_store(home, **settings)
    client = Client(server.address)
    (claimed,) = await asyncio.gather(Run(client, run.project, "r").claim("next"), return_exceptions=True)
    await client.close()
    await server.stop()
    return claimed.reason if isinstance(claimed, TurnwrightError) else None


# ---- What a claim returns


async def test_records_beyond_a_message_come_without_body_and_attributes(run):
    await run.begin()
    big = "x" * (3 * 1024 * 1024)
    paths = [f"log://turn_1/sh/{number}" for number in range(3)]
    for path in paths:
        await run.write(set_(path, big, '{"tool":"sh"}', state=RECORDED))
    claimed = await run.claim()
    assert [record.path for record in claimed.records] == paths
    assert [(len(record.body), record.body_size_bytes) for record in claimed.records] == [
        (len(big), len(big)), (0, len(big)), (0, len(big)),
    ]  # fmt: skip
    assert [record.attributes_json for record in claimed.records] == ['{"tool":"sh"}', "", ""]


async def test_a_waiting_proposal_is_claimed_as_it_waits(run):
    await run.begin()
    await run.write(set_("log://turn_1/sh/x", "", "{}", state=PROPOSED), run_status=202)
    claimed = await run.claim()
    assert (claimed.loop.status, claimed.run.status, claimed.open_turn.number) == (202, 202, 1)


# ---- Owners that are lost in the middle of a turn


async def lost(run: Run, *owners: str) -> list[int]:
    """What each of these owners is told of those before it, when none of them gives the run back."""
    told = []
    for owner in owners:
        told.append((await until_free(run, owner)).turn_losses)
        await run.claim(owner, lease_duration=timedelta(milliseconds=100))
    return told


async def test_owners_that_never_came_back_are_counted_with_the_turn(brief_grace, client, project):
    run = await new_run(client, project, "r")
    await run.enqueue()
    await run.claim("first", lease_duration=timedelta(milliseconds=100))
    assert await lost(run, "second") == [0]
    await run.begin()
    assert await lost(run, "third", "fourth") == [1, 2]
    await run.end(1)
    await run.begin()
    assert await lost(run, "fifth") == [1]


async def test_an_owner_that_lost_the_run_and_lives_is_not_counted(brief_grace, client, project):
    run = await new_run(client, project, "r")
    await run.enqueue()
    await run.claim("first", lease_duration=timedelta(milliseconds=100))
    await run.begin()
    await renew(client, owner="first", lease_duration=timedelta(milliseconds=60_000))
    assert await lost(run, "second", "third") == [0, 1]


async def test_an_owner_that_gives_the_run_back_is_not_counted_and_keeps_the_count(brief_grace, client, project):
    run = await working_run(client, project, "r")
    await run.begin()
    await release(run)
    assert (await run.claim("second", lease_duration=timedelta(milliseconds=100))).turn_losses == 0
    assert await lost(run, "third") == [1]
    await release(run)
    assert (await run.claim("fourth")).turn_losses == 1


@SQLITE_ONLY
async def test_a_store_that_starts_with_its_executor_counts_the_one_before(tmp_path, db):
    """They are one process: it frees every run at its start, and what was under way then was lost."""
    server = await start_store(tmp_path, sole_executor=True)
    client = Client(server.address)
    run = await working_run(client, await new_project(client), "r")
    await run.begin()
    await client.close()
    await server.stop()
    server = await start_store(tmp_path, sole_executor=True)
    client = Client(server.address)
    assert (await Run(client, run.project, "r").claim("second")).turn_losses == 1
    await client.close()
    await server.stop()


async def test_the_lease_of_a_run_tells_where_its_owner_answers(client, project):
    run = await new_run(client, project, "r")
    free = await client.call("GetLease", **run.address)
    assert (free.owner, free.address, free.run_status) == ("", "", 100)
    await run.enqueue()
    await run.claim("owner", lease_duration=timedelta(milliseconds=60_000))
    held = await client.call("GetLease", **run.address)
    assert (held.owner, held.address, held.run_status) == ("owner", "here:1", 102)
    await release(run)
    assert (await client.call("GetLease", **run.address)).owner == ""
