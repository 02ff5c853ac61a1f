"""The leases of an executor against a store that is there, is gone, or lets somebody else in."""

import asyncio
import time

import pytest
import pytest_asyncio

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_executor.peers.store import StoreLedger
from turnwright_executor.runs.leases import Leases

from .bench import run_entries, served_store

# Slow, for it waits.
pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

TERM_S = 2.0
"""A third of it is left for a renewal, two thirds for a machine that stalls."""


class Worker:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.lost: list[tuple[str, bool]] = []
        self.aborts = 0

    def on_lost(self, address, *, to_other: bool) -> None:
        self.lost.append((address.run, to_other))

    def abort(self, _address) -> None:
        self.aborts += 1


class FaultyLedger(StoreLedger):
    """The store over a line that may break."""

    fault = ""
    renewals = 0
    granted = False
    answers_after_s = 0.0
    releases_after_s = 0.0

    async def claim(self, address):
        claim = await super().claim(address)
        self.granted = True
        await asyncio.sleep(self.answers_after_s)
        return claim

    async def claim_work(self, limit, workspaces):
        claims = await super().claim_work(limit, workspaces)
        self.granted = True
        await asyncio.sleep(self.answers_after_s)
        return claims

    async def release(self, address, epoch):
        await super().release(address, epoch)
        await asyncio.sleep(self.releases_after_s)

    async def renew(self, leases, workspaces):
        if self.fault == "gone":
            raise fault(Reason.SERVICE_UNAVAILABLE, "The line is cut.", service="store", address="nowhere")
        self.renewals += 1
        if self.fault == "odd":
            raise ValueError("This is no answer.")
        if self.fault == "hangs":
            await asyncio.sleep(60)
        return await super().renew(leases, workspaces)


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - it tells nobody else
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture
async def store(tmp_path):
    async with served_store(tmp_path) as peer:
        yield peer


@pytest_asyncio.fixture
async def held(store, tmp_path):
    """Leases with one run that was claimed just now, and who works under them."""
    entries = await run_entries(store, tmp_path)
    await entries.ledger.release(entries.address, 1)
    ledger = FaultyLedger(store, "me", "here:1", round(TERM_S * 1000))
    leases, worker = Leases(ledger, time.monotonic, (), registers=False), Worker()
    leases.start(worker)
    await leases.claim(entries.address)
    yield leases, worker, entries.address
    await leases.stop()


async def test_a_lease_is_renewed_for_as_long_as_it_is_held(store, held):
    leases, worker, address = held
    # For longer than its term: a third of that lies between two.
    await until(lambda: leases._ledger.renewals > 3)
    other = StoreLedger(store, "other", "there:1")
    with pytest.raises(TurnwrightError):
        await other.claim(address)
    assert worker.lost == []


@pytest.mark.parametrize("fault", ["gone", "hangs"])
async def test_what_cannot_be_renewed_is_stopped(held, fault):
    """A store that does not answer is not waited for."""
    leases, worker, address = held
    leases._ledger.fault = fault
    await until(lambda: worker.lost)
    assert worker.lost == [(address.run, False)]


async def test_what_is_given_back_meanwhile_is_not_lost_with_a_renewal(held):
    leases, worker, address = held
    leases._ledger.releases_after_s = TERM_S / 2
    before = leases._ledger.renewals
    await leases.give_back(address)
    assert leases._ledger.renewals > before
    assert (worker.lost, leases.holds(address)) == ([], False)


async def test_what_goes_back_with_another_write_is_not_lost_with_a_renewal(held):
    leases, worker, address = held
    before = leases._ledger.renewals
    with leases.returning(address) as returned:
        await leases._ledger.release(address, 2)
        await asyncio.sleep(TERM_S / 2)
        assert leases._ledger.renewals > before
        returned()
    assert (worker.lost, leases.holds(address)) == ([], False)


async def test_what_went_back_although_nobody_heard_of_it_is_lost_with_the_next_renewal(held):
    leases, worker, address = held
    with leases.returning(address):
        await leases._ledger.release(address, 2)
    await until(lambda: worker.lost)
    assert worker.lost == [(address.run, True)]


async def test_what_is_claimed_once_more_meanwhile_is_not_lost_with_a_renewal(held):
    leases, worker, address = held
    leases._ledger.answers_after_s = TERM_S / 2
    before = leases._ledger.renewals
    claim = await leases.claim(address)
    assert (claim.epoch, leases._ledger.renewals > before) == (3, True)
    assert (worker.lost, leases.holds(address)) == ([], True)


async def test_what_another_has_claimed_is_lost_with_the_next_renewal(store, held):
    _, worker, address = held
    other = StoreLedger(store, "other", "there:1")
    await other.release(address, 2)
    await other.claim(address)
    await until(lambda: worker.lost)
    assert worker.lost == [(address.run, True)]


async def test_everything_is_given_back_at_the_end(store, held):
    leases, worker, address = held
    await leases.stop()
    assert (await StoreLedger(store, "other", "there:1").claim(address)).epoch == 3
    assert worker.lost == []


# ---- The look before an effect on the world


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest_asyncio.fixture
async def paused(store, tmp_path):
    """Leases of a minute with one run, by a clock that the test sets: as if the process had been stopped meanwhile."""
    entries = await run_entries(store, tmp_path)
    await entries.ledger.release(entries.address, 1)
    ledger, clock, worker = FaultyLedger(store, "me", "here:1", 60_000), Clock(), Worker()
    leases = Leases(ledger, clock, (), registers=False)
    leases.start(worker)
    await leases.claim(entries.address)
    yield leases, ledger, clock, worker, entries.address
    await leases.stop()


@pytest.mark.parametrize(("now_s", "renewals"), [(0, 0), (39, 0), (41, 1), (300, 1)])
async def test_an_effect_needs_a_renewal_only_when_little_time_is_left(paused, now_s, renewals):
    leases, ledger, clock, worker, address = paused
    clock.now_s = now_s
    await leases.confirm(address)
    assert (ledger.renewals, worker.lost) == (renewals, [])


@pytest.mark.parametrize(("now_s", "lost"), [(41, 0), (49, 0), (51, 1)])
async def test_what_has_begun_may_come_to_its_end_while_nothing_else_begins(paused, now_s, lost):
    leases, ledger, clock, worker, address = paused
    ledger.fault = "gone"
    clock.now_s = now_s
    with pytest.raises(TurnwrightError):
        await leases.confirm(address)
    leases._stop_what_is_over(worker)
    assert len(worker.lost) == lost


async def test_who_was_followed_meanwhile_begins_no_effect(store, paused):
    leases, _, clock, worker, address = paused
    other = StoreLedger(store, "other", "there:1")
    await other.release(address, 2)
    await other.claim(address)
    clock.now_s = 300
    with pytest.raises(TurnwrightError) as lost:
        await leases.confirm(address)
    assert lost.value.reason is Reason.LEASE_LOST
    assert worker.lost == [(address.run, True)]
    assert not leases.holds(address)


async def test_renewals_that_crash_again_and_again_are_few(store) -> None:
    ledger = FaultyLedger(store, "me", "here:1", round(TERM_S * 1000))
    ledger.fault = "odd"
    leases = Leases(ledger, time.monotonic, (), registers=True)
    leases.start(Worker())
    await until(lambda: ledger.renewals)
    await asyncio.sleep(0.3)
    await leases.stop()
    assert ledger.renewals < 5


@pytest.mark.parametrize("claims", [lambda leases, run: leases.claim(run), lambda leases, _: leases.claim_work(10)])
async def test_a_claim_that_is_granted_to_nobody_is_given_back(store, tmp_path, claims) -> None:
    entries = await run_entries(store, tmp_path)
    await entries.ledger.release(entries.address, 1)
    ledger = FaultyLedger(store, "me", "here:1", 60_000)
    ledger.answers_after_s = 0.3
    leases = Leases(ledger, time.monotonic, (), registers=False)
    leases.start(Worker())
    claiming = asyncio.create_task(claims(leases, entries.address))
    await until(lambda: ledger.granted)
    claiming.cancel()
    await leases.stop()
    claim = await StoreLedger(store, "other", "there:1").claim(entries.address)
    assert (claiming.cancelled(), claim.epoch, claim.turn_losses) == (True, 3, 0)
