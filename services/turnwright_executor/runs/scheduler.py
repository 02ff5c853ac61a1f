"""The scheduler: one worker task for each run that has something to do on this executor.

A worker claims its run, drives the active loop until it ends or waits for a decision, and claims again until nothing is
left. It has no state that is not in the ledger: while a decision is awaited there is no worker, and the decision starts
another one, here or in a later process. Source: architecture 3, 11; rows RU109-RU111, RU255; docs/adr/0002.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from msgspec import Struct
from turnwright_values.store import ClaimRunResponse
from turnwright_values.types import Loop

from turnwright_core.backoff import Backoff
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import ABORT, AWAY, GONE, ending_of, is_of_store
from turnwright_executor.ports.ledger import CreatedRun
from turnwright_executor.runs.leases import Leases
from turnwright_executor.turn.driver import Driver
from turnwright_executor.turn.loop_scope import LeaseHandle, LoopScope, Placement, Services
from turnwright_executor.turn.loop_steps import LoopSteps
from turnwright_executor.turn.machine import Action
from turnwright_executor.turn.slots import READY_MAX, Slot, Slots
from turnwright_executor.turn.turn_line import bind_turn
from turnwright_executor.turn.unsaved import UnsavedState, state_of
from turnwright_executor.watching.hub import RunHub
from turnwright_executor.watching.hubs import Hubs
from turnwright_kit.logs import get_logger
from turnwright_kit.scope import detached

# Failures of our services that a worker has met.


class Failures(Struct):
    """Failures of our services in a row."""

    of_store: int = 0
    of_others: int = 0

    def count(self, error: TurnwrightError) -> int:
        """Count one; how many there are now of the store, or else of the other services."""
        if is_of_store(error):
            self.of_store += 1
            return self.of_store
        self.of_others += 1
        return self.of_others


SERVICE_BACKOFF: Final = Backoff(0.3, 5.0)
"""Backoff before a loop goes on after one of our services was unavailable."""

SERVICE_RETRIES_MAX: Final = 5
"""Retries over nine seconds, in which a restarted service is back; then the loop fails.

If it is the store that is unavailable, the loop is retried every `work_poll_s` instead.
"""

REPORTED_FROM: Final = 2
"""Failure of the database from which watchers are told: the first one may be over before anybody has read of it."""

CLAIMS_MAX: Final = 100
"""Maximum number of runs to claim in one call."""

ASLEEP_MAX: Final = 8
"""Runs that are held for each slot, most of them asleep: beyond that no more are looked for."""

RETRY_S_MORE: Final = 0.05
"""Seconds after another's lease has expired before it is claimed: the clocks of two hosts differ."""

_log = get_logger("scheduler")

Placing = Callable[[RunAddress, ClaimRunResponse, Loop], Awaitable[Placement]]


class _Worker(Struct):
    slot: Slot
    task: asyncio.Task[None] | None = None
    again: bool = False
    driver: Driver | None = None
    aborting: bool = False
    is_placed: bool = False
    """Whether it has got a slot for its loop, which it gives back while that sleeps."""
    sequence: int = 0
    """The loop being driven; 0: none."""
    claim: ClaimRunResponse | None = None
    """A claim from the work queue for this worker."""


class Scheduler:
    """Owns the workers."""

    def __init__(
        self,
        services: Services,
        hubs: Hubs,
        leases: Leases,
        place: Placing,
        backoff: Backoff = SERVICE_BACKOFF,
    ) -> None:
        """`place` finds where a loop works on this host; it raises OSError if it cannot.

        `backoff` is the pause of a loop after a failure of one of our services.
        """
        self._services = services
        self._leases = leases
        self._hubs = hubs
        self._place = place
        self._backoff = backoff
        self._workers: dict[RunAddress, _Worker] = {}
        self._unsaved: dict[RunAddress, UnsavedState] = {}
        self._slots = Slots(services.settings.loops_max)
        self._ready = Slots(READY_MAX)
        self._draining = False
        self._seeking: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        """Set when there may be work before the next poll is due."""
        self._waiting: dict[RunAddress, asyncio.TimerHandle] = {}
        self._expecting: dict[RunAddress, asyncio.Task[None]] = {}
        """Runs with waiting proposals, and the tasks that wait for their expiry."""

    def start(self, *, seek: bool) -> None:
        """Start lease renewals; `seek`: also poll for runs with work, including those that others left."""
        self._leases.start(self)
        if seek:
            self._seeking = asyncio.create_task(self._seek(), name="seek work")

    def working(self) -> int:
        """How many loops are worked on."""
        return sum(worker.slot.has_loop for worker in self._workers.values())

    async def _seek(self) -> None:
        """Services start in any order, and fail for a while: whatever the store answers, polling goes on."""
        settings = self._services.settings
        while True:
            free = min(self._slots.free, settings.loops_max * ASLEEP_MAX - len(self._workers), CLAIMS_MAX)
            claims: Sequence[ClaimRunResponse] = ()
            if free > 0:
                try:
                    claims = await self._leases.claim_work(free)
                except TurnwrightError as error:
                    _log.warning("work_search_failed", reason=error.reason.name, detail=error.message)
                except Exception as error:  # noqa: BLE001 - one run that cannot be read keeps no other waiting
                    _log.error("seeking_crashed", exc_info=error)
            for claim in claims:
                self.kick(RunAddress(claim.run.project, claim.run.run), claim)
            if not claims or len(claims) < free:
                with suppress(TimeoutError):
                    async with asyncio.timeout(settings.work_poll_s):
                        await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0)

    async def create(self, create: Callable[[bool], Coroutine[Any, Any, CreatedRun]]) -> CreatedRun:
        """Create a run, and claim it with that if it can be worked on here at once. Raises TurnwrightError."""
        claims = not (self._draining or self._leases.is_workspace_bound) and self._slots.free > 0
        return await self._leases.claim_created(create(claims))

    def _employ(self, address: RunAddress, claim: ClaimRunResponse | None = None, *, aborting: bool = False) -> None:
        is_by_poll = self._seeking and self._leases.is_workspace_bound
        if claim is None and is_by_poll and not self._leases.holds(address):
            # Claiming a run starts its loop, even if nobody has its workspace; for runs found by polling the store
            # checks that. A run that is held already was found while its worker was stopping.
            self._wake.set()
            return
        if expecting := self._expecting.pop(address, None):
            expecting.cancel()
        worker = self._workers[address] = _Worker(self._slot(address), claim=claim, aborting=aborting)
        worker.task = detached(self._run(address, worker), name=f"worker {address.run}")
        worker.task.add_done_callback(lambda _: self._left(address, worker))

    def _slot(self, address: RunAddress) -> Slot:
        return Slot(self._slots, self._ready, address.project, partial(self._hubs.report_waiting, address))

    def kick(self, address: RunAddress, claim: ClaimRunResponse | None = None) -> None:
        """There may be something to do for a run: check now, or as soon as its worker is free.

        `claim`: it was claimed already.
        """
        if self._draining:
            return
        if worker := self._workers.get(address):
            worker.again = True
        else:
            self._employ(address, claim)

    def _expect_expiry(self, address: RunAddress, since: int) -> None:
        """A decision is awaited. An executor that does not poll must be notified when the proposal expires.

        `since` is a moment before the run was claimed: an earlier expiry was already seen then.
        """
        if self._seeking is None and not self._draining:
            if before := self._expecting.get(address):
                before.cancel()
            self._expecting[address] = detached(self._expired(address, since), name=f"expiry in {address.run}")

    async def _expired(self, address: RunAddress, since: int) -> None:
        with suppress(TurnwrightError):
            async with self._hubs.hold(address) as hub:
                await hub.expired(since)
        self.kick(address)

    def _kick_later(self, address: RunAddress, wait_s: float) -> None:
        """Kick after a pause; several requests for one run are merged."""
        if address not in self._waiting and not self._draining:
            self._waiting[address] = asyncio.get_running_loop().call_later(wait_s, self._kick_now, address)

    def _stopped(self, address: RunAddress, error: TurnwrightError) -> None:
        """A worker stops: not even the loop's end could be stored. It goes on from there once that is possible."""
        _log.warning("worker_stopped", run=address.run, reason=error.reason.name, detail=error.message)
        if error.reason in AWAY:
            self._kick_later(address, self._services.settings.work_poll_s)
        elif error.reason not in GONE:
            self._look_again(address)
        else:
            self._unsaved.pop(address, None)

    def _look_again(self, address: RunAddress) -> None:
        """A run was left for a reason that may persist: an executor that does not poll must retry it."""
        if self._seeking is None:
            self._kick_later(address, self._services.settings.work_poll_s)

    def _kick_now(self, address: RunAddress) -> None:
        del self._waiting[address]
        self.kick(address)

    def on_lost(self, address: RunAddress, *, to_other: bool) -> None:
        """Stop the work on a run whose lease is lost. If nobody else has taken it, it is claimed again."""
        worker = self._workers.get(address)
        if worker and worker.task:
            worker.task.cancel()
        if to_other:
            self._unsaved.pop(address, None)
        else:
            self._kick_later(address, self._services.settings.work_poll_s)

    def abort(self, address: RunAddress, sequence: int = 0) -> None:
        """The abort of the active loop is stored: stop what is in progress, and settle it.

        `sequence` says which loop, if known: another one that has started since goes on.
        """
        worker = self._workers.get(address)
        if worker and (worker.aborting or (sequence and worker.sequence and worker.sequence != sequence)):
            return
        if worker:
            worker.aborting = worker.again = True
            if worker.driver:
                worker.driver.interrupt(ABORT)
            elif worker.task and not worker.is_placed:
                # It waits for a slot: the next owner of one settles the abort first.
                worker.task.cancel()
        elif not self._draining:
            self._employ(address, aborting=True)

    def leave(self) -> None:
        """ClaimRunResponse no more work. What is worked on goes on; a claim that is being made is given back."""
        if self._seeking:
            self._seeking.cancel()

    async def drain(self) -> None:
        """Stop all workers where they are, and release their runs; the ledgers say how to continue.

        Effects in progress have `drain_s` to come to their end, because those that are stopped may or may not have
        happened.
        """
        self._draining = True
        for timer in self._waiting.values():
            timer.cancel()
        tasks = [*self._expecting.values(), *([self._seeking] if self._seeking else [])]
        busy: list[asyncio.Task[None]] = []
        for worker in self._workers.values():
            if worker.task:
                (busy if worker.driver and worker.driver.stop_after_effect() else tasks).append(worker.task)
        for task in tasks:
            task.cancel()
        if busy:
            _, late = await asyncio.wait(busy, timeout=self._services.settings.drain_s)
            for task in late:
                task.cancel()
        await asyncio.gather(*tasks, *busy, return_exceptions=True)
        await self._leases.stop()

    async def _run(self, address: RunAddress, worker: _Worker) -> None:
        bind_turn(address, None)
        try:
            if worker.aborting and not self._slots.free:
                await self._settle_aborted(address)
                worker.aborting = False
            while True:
                await worker.slot.take_loop()
                worker.is_placed, worker.again = True, False
                await self._work(address, worker)
                await self._leases.give_back(address)
                worker.slot.sleep()
                if not worker.again:
                    return
                worker.is_placed = False
        except (Exception, asyncio.CancelledError) as error:
            if worker.task and worker.task.cancelling():
                # It is the worker itself that is being stopped, not only its step.
                raise
            _log.error("worker_crashed", run=address.run, exc_info=error)
            await self._leases.give_back(address)
            self._look_again(address)

    def _left(self, address: RunAddress, worker: _Worker) -> None:
        """A worker has ended. Not a `finally` of its own: a task that is cancelled before its first step has none."""
        del self._workers[address]
        worker.slot.sleep()
        if worker.aborting and not worker.is_placed:
            self.abort(address)
        elif worker.again:
            # It was kicked while it was ending or being stopped.
            self._kick_later(address, 0)

    async def _settle_aborted(self, address: RunAddress) -> None:
        """Settle an abort without a slot: nothing is carried out for it. If that fails, the worker does it later."""
        with suppress(TurnwrightError):
            claim = await self._leases.claim(address)
            if claim.loop and claim.abort_requested:
                async with self._hubs.hold(address) as hub:
                    await self._driver(address, claim, claim.loop, hub, self._slot(address))[1].drive()
        await self._leases.give_back(address)

    async def _work(self, address: RunAddress, worker: _Worker) -> None:
        """Drive loop after loop, until none is left or one waits. Never raises, so that one run cannot break others."""
        failures, turn = Failures(), 0
        while True:
            try:
                async with self._hubs.hold(address) as hub:
                    worker.aborting, since = False, hub.moment
                    claim, worker.claim = worker.claim or await self._leases.claim(address), None
                    if claim.loop is None or not self._leases.has_workspace(claim):
                        self._unsaved.pop(address, None)
                        return
                    if claim.run.turn != turn:
                        # The loop has gone on: it is not the same failure again.
                        failures, turn = Failures(), claim.run.turn
                    outcome = await self._loop(address, worker, claim, claim.loop, hub)
                    left = self._unsaved.pop(address, None)
                    if claim.run.parent or (left and left.has_agents):
                        await self._settle_agents(address)
                    if outcome is Action.PARK:
                        self._expect_expiry(address, since)
                        return
                    if not self._leases.holds(address):
                        # It was released with the end of its last loop.
                        return
                failures = Failures()
            except TurnwrightError as error:
                worker.slot.sleep()
                if not await self._goes_on_after(error, address, failures):
                    return

    async def _settle_agents(self, address: RunAddress) -> None:
        """A loop with agents, or of one, has ended or waits: whoever waits for it goes on."""
        try:
            woken = await self._services.ledger.settle_agents(address)
        except TurnwrightError as error:
            # The store does it some time later.
            _log.warning("agents_not_settled", run=address.run, reason=error.reason.name, detail=error.message)
            return
        for run in woken:
            self.kick(RunAddress(address.project, run))

    async def _goes_on_after(self, error: TurnwrightError, address: RunAddress, failures: Failures) -> bool:
        """Whether to claim a run again whose loop was left with this error, after a pause."""
        if error.reason is Reason.LEASE_HELD:
            self._unsaved.pop(address, None)
            self._kick_later(address, self._retry_s(error))
            return False
        number = failures.count(error) if error.reason in AWAY else SERVICE_RETRIES_MAX + 2
        if number == REPORTED_FROM and error.reason is Reason.DATABASE_UNAVAILABLE:
            self._hubs.warn(address, error.message)
        if number <= SERVICE_RETRIES_MAX:
            await asyncio.sleep(self._backoff.pause_s(number))
        elif number == SERVICE_RETRIES_MAX + 1 and not is_of_store(error):
            self._unsaved[address].ending = ending_of(error)
        else:
            # A loop does not fail because the store is unavailable: its end could not be stored, and the store may be
            # back soon.
            self._stopped(address, error)
            return False
        return True

    def _retry_s(self, error: TurnwrightError) -> float:
        """When to retry a run that another executor has: once its lease may have expired or been released."""
        expires_s = int(error.metadata.get("expires_in_ms", "0")) / 1000
        return min(expires_s + RETRY_S_MORE, self._services.settings.work_poll_s)

    def _driver(
        self, address: RunAddress, claim: ClaimRunResponse, loop: Loop, hub: RunHub, slot: Slot
    ) -> tuple[LoopSteps, Driver]:
        unsaved = self._unsaved.get(address)
        if unsaved is None or unsaved.loop != loop.sequence:
            unsaved = self._unsaved[address] = UnsavedState(loop.sequence)
        leases = self._leases
        lease = LeaseHandle(
            partial(leases.confirm, address), partial(leases.claim, address), partial(leases.returning, address)
        )
        place = partial(self._place, address, claim, loop)
        steps = LoopSteps(LoopScope(self._services, address, claim, loop, unsaved, hub, lease, slot), place)
        driver = Driver(state_of(claim, unsaved, self._services.settings.turn_losses_max), steps)
        steps.interrupt = driver.interrupt
        return steps, driver

    async def _loop(
        self, address: RunAddress, worker: _Worker, claim: ClaimRunResponse, loop: Loop, hub: RunHub
    ) -> Action:
        """Drive a loop until it ends or waits for a decision. Raises TurnwrightError if it is left as it is."""
        steps, driver = self._driver(address, claim, loop, hub, worker.slot)
        worker.driver, worker.sequence = driver, loop.sequence
        # An abort may be requested from another executor, or from the store: the change feed reports it at once, the
        # next renewal in any case.
        hub.report_abort(partial(self.abort, address))
        if worker.aborting:
            driver.interrupt(ABORT)
        try:
            return await driver.drive()
        finally:
            hub.report_abort(None)
            worker.driver, worker.sequence = None, 0
            steps.close()
