"""The workers: one task for each run that has something to do on this executor.

A worker claims its run, drives the active loop until it ends or waits for a decision, and claims again until nothing
is left. It holds nothing that is not in the ledger: waiting for a decision means that the worker has ended, and the
decision starts another one, here or in a later process.
Source: architecture 3, 11; rows RU109-RU111, RU255; docs/adr/0002.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.runs import FAILED, Loop
from turnwright_executor.app.generation import Draft
from turnwright_executor.app.hub import RunHub
from turnwright_executor.app.hubs import Hubs
from turnwright_executor.app.loop import LoopDriver, LoopOutcome, Place, Services
from turnwright_executor.app.settlement import ABORT, Ending, ending_of, settle
from turnwright_executor.ports import Claim, RunAddress

SERVICE_BACKOFF_S: Final = (0.2, 1.0, 3.0, 5.0)
"""Seconds before a loop goes on after a service of ours did not answer; after the last one the loop fails."""

_log = structlog.get_logger("runner")

Placing = Callable[[RunAddress, Claim, Loop, RunHub], Awaitable[Place]]


@dataclass(slots=True)
class _Worker:
    task: asyncio.Task[None] | None = None
    again: bool = False
    step: asyncio.Task[LoopOutcome] | None = None
    aborting: bool = False
    draft: Draft = field(default_factory=Draft)


class Runner:
    """Owns the workers."""

    def __init__(self, services: Services, hubs: Hubs, place: Placing) -> None:
        """`place` finds where a loop works on this host; it raises OSError where it cannot."""
        self._services = services
        self._hubs = hubs
        self._place = place
        self._workers: dict[RunAddress, _Worker] = {}
        self._slots = asyncio.Semaphore(services.settings.loops_max)
        self._draining = False
        self._recovery: asyncio.Task[None] | None = None

    def recover(self) -> None:
        """Go on with what an earlier executor left, as soon as the store answers: services start in any order."""
        self._recovery = asyncio.create_task(self._recover(), name="recovery")

    async def _recover(self) -> None:
        for wait_s in itertools.chain(SERVICE_BACKOFF_S, itertools.repeat(SERVICE_BACKOFF_S[-1])):
            try:
                found = await self._services.ledger.list_work()
            except TurnwrightError as error:
                _log.warning("recovery_waits", reason=error.reason.name, detail=error.message)
                await asyncio.sleep(wait_s)
            else:
                for address in found:
                    self.kick(address)
                return

    def kick(self, address: RunAddress) -> None:
        """There may be something to do for a run: look, now or as soon as its worker comes round."""
        if self._draining:
            return
        worker = self._workers.get(address)
        if worker:
            worker.again = True
            return
        worker = self._workers[address] = _Worker()
        worker.task = asyncio.create_task(self._run(address, worker), name=f"worker {address.run}")

    def abort(self, address: RunAddress) -> None:
        """The abort of the active loop is in the store: stop what is under way, and settle it."""
        worker = self._workers.get(address)
        if worker:
            worker.aborting = True
            if worker.step:
                worker.step.cancel()
        self.kick(address)

    async def drain(self) -> None:
        """Stop all workers where they are; their ledgers say how to go on."""
        self._draining = True
        tasks = [worker.task for worker in self._workers.values() if worker.task]
        tasks += [self._recovery] if self._recovery else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, address: RunAddress, worker: _Worker) -> None:
        try:
            async with self._slots:
                while True:
                    worker.again = False
                    await self._work(address, worker)
                    if not worker.again:
                        return
        finally:
            # No await between the last look at `again` and here: a kick finds either this worker or none.
            del self._workers[address]

    async def _work(self, address: RunAddress, worker: _Worker) -> None:
        """Loop after loop, until none is left or one waits. Never raises, so that no run is lost to another's fault."""
        failures, last = 0, None
        while True:
            try:
                async with self._hubs.hold(address) as hub:
                    worker.aborting = False
                    claim = await self._services.ledger.claim(address)
                    if claim.loop is None:
                        return
                    if last:
                        await settle(self._services.ledger, address, claim, worker.draft, last)
                        last = None
                    elif await self._loop(address, worker, claim, claim.loop, hub) is LoopOutcome.PARKED:
                        return
                failures = 0
            except TurnwrightError as error:
                if error.reason is not Reason.SERVICE_UNAVAILABLE or failures > len(SERVICE_BACKOFF_S):
                    _log.warning("worker_stopped", run=address.run, reason=error.reason.name, detail=error.message)
                    return
                if failures == len(SERVICE_BACKOFF_S):
                    last = ending_of(error)
                else:
                    await asyncio.sleep(SERVICE_BACKOFF_S[failures])
                failures += 1

    async def _loop(self, address: RunAddress, worker: _Worker, claim: Claim, loop: Loop, hub: RunHub) -> LoopOutcome:
        if claim.abort_requested:
            await settle(self._services.ledger, address, claim, Draft(), ABORT)
            return LoopOutcome.ENDED
        worker.draft = Draft()
        try:
            place = await self._place(address, claim, loop, hub)
            driver = LoopDriver(self._services, address, claim, loop, place, worker.draft)
            return await self._driven(address, worker, driver, loop)
        except TurnwrightError as error:
            if error.reason in (Reason.SERVICE_UNAVAILABLE, Reason.LEASE_LOST):
                raise
            await self._end(address, worker, loop, ending_of(error))
        except OSError as error:
            await self._end(address, worker, loop, ending_of(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours ends one loop, not the executor
            error_id = secrets.token_hex(8)
            _log.error("loop_crashed", run=address.run, error_id=error_id, exc_info=error)
            text = f"A fault of the runtime ended the loop. Look for {error_id} in the executor's log."
            await self._end(address, worker, loop, Ending(FAILED, "internal", text))
        return LoopOutcome.ENDED

    async def _driven(self, address: RunAddress, worker: _Worker, driver: LoopDriver, loop: Loop) -> LoopOutcome:
        """Drive in a task of its own, which an abort can cancel without ending the worker."""
        step = worker.step = asyncio.create_task(driver.drive(), name=f"loop {address.run}")
        if worker.aborting:
            step.cancel()
        try:
            return await step
        except asyncio.CancelledError:
            if not (worker.aborting and step.cancelled()):
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
                raise
        finally:
            worker.step = None
        await self._end(address, worker, loop, ABORT)
        return LoopOutcome.ENDED

    async def _end(self, address: RunAddress, worker: _Worker, loop: Loop, ending: Ending) -> None:
        """End this loop from whatever state the ledger has it in; leave alone another that has begun since."""
        claim = await self._services.ledger.claim(address)
        is_same = claim.loop is not None and claim.loop.sequence == loop.sequence
        if is_same and (claim.abort_requested or ending is not ABORT):
            await settle(self._services.ledger, address, claim, worker.draft, ending)
