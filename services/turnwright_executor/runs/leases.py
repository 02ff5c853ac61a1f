"""The leases of this executor: renewed together, released when work ends, and given up in time.

Theory of operation. A lease lasts for its term from the store's answer to a claim or a renewal; the executor counts
from the moment it asked, by its own clock. It renews all leases in one call, three times a term. Two thirds of a term
after the last renewal no effect begins any more; one that has begun may come to its end, and the store may come back.
At five sixths all work on the run is stopped: the rest of the term is for stopping, so that nothing runs here any more
when another executor may begin. If it runs late all the same (a paused process, a blocked machine), the store refuses
its writes by the epoch, the fencing token.
Source: architecture 3 (runs, loops, turns, leases), 11.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from math import inf, isinf
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct
from turnwright_values.store import ClaimRunResponse

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import CreatedRun, Ledger
from turnwright_kit.logs import get_logger
from turnwright_kit.scope import detached
from turnwright_kit.telemetry import count
from turnwright_kit.telemetry_names import LEASES_LOST

START_SHARE: Final = 2 / 3
"""Share of a lease's term after which no effect begins without a renewal."""

WORK_SHARE: Final = 5 / 6
"""Share of a lease's term after which work stops without a renewal."""

RENEWALS: Final = 3
"""Renewals per term."""

TRIES: Final = 12
"""Maximum attempts at a renewal per term while the store does not answer."""

TERM_S_FIRST: Final = 6.0
"""Assumed term in seconds before the store has reported it: its default."""

RELEASE_S_MAX: Final = 2.0
"""Timeout for releasing everything at shutdown, in seconds; other leases expire by themselves."""

T = TypeVar("T")

_log = get_logger("leases")


class Holder(Protocol):
    """The worker under the leases."""

    def on_lost(self, address: RunAddress, *, to_other: bool) -> None:
        """Stop the work on a run: another executor holds it, or it could not be renewed."""

    def abort(self, address: RunAddress) -> None:
        """Somebody has requested to abort the active loop."""


class _HeldLease(Struct):
    epoch: int
    term_s: float
    until_s: float
    """When work must stop, by the executor's clock."""
    is_changing: bool = False
    """Whether it is being released or claimed again: then a refused renewal is not a loss."""


class Leases:
    """The leases of one executor."""

    def __init__(
        self, ledger: Ledger, clock_s: Callable[[], float], workspaces: Sequence[str], *, registers: bool
    ) -> None:
        """`clock_s` must go on while the host sleeps.

        `registers`: register this executor with the store even without work.
        """
        self._ledger = ledger
        self._clock_s = clock_s
        self._workspaces = workspaces
        self._registers = registers
        self._held: dict[RunAddress, _HeldLease] = {}
        self._term_s = TERM_S_FIRST
        self._asked_s = -inf
        self._taken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._holder: Holder | None = None
        self._renewing: list[asyncio.Task[None]] = []
        self._returning: set[asyncio.Task[None]] = set()

    def start(self, holder: Holder) -> None:
        """Start renewals; the holder is notified of losses."""
        self._holder = holder
        self._begin(holder, 0.0)

    def _begin(self, holder: Holder, wait_s: float) -> None:
        self._task = asyncio.create_task(self._keep(holder, wait_s), name="leases")
        self._task.add_done_callback(partial(self._ended, holder))

    def _ended(self, holder: Holder, task: asyncio.Task[None]) -> None:
        """A crash of the renewal task must not leave work running without renewals."""
        if task.cancelled() or not (error := task.exception()):
            return
        _log.error("renewals_crashed", exc_info=error)
        for address in list(self._held):
            self._lose(holder, address, to_other=False)
        # A crash that repeats at once would call the store each time.
        self._begin(holder, self._term_s / TRIES)

    async def stop(self) -> None:
        """Stop renewals and release everything."""
        tasks = [*self._renewing, *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(RELEASE_S_MAX):
                await asyncio.gather(*(self.give_back(address) for address in list(self._held)), *self._returning)
        except TimeoutError:
            _log.warning("leases_abandoned", runs=len(self._held) + len(self._returning))

    # Taking ------------------------------------------------------------------------------------------------------

    async def claim(self, address: RunAddress) -> ClaimRunResponse:
        asked_s, before = self._clock_s(), self._held.get(address)
        if before:
            before.is_changing = True
        try:
            claim = await self._granted(self._ledger.claim(address), lambda claim: [claim])
        finally:
            if before:
                before.is_changing = False
        self._hold(address, claim, asked_s)
        return claim

    async def claim_created(self, creating: Coroutine[Any, Any, CreatedRun]) -> CreatedRun:
        """Await the creation of a run, which may be claimed with it. Raises TurnwrightError."""
        asked_s = self._clock_s()
        created = await self._granted(creating, lambda created: [created.claim] if created.claim else [])
        if created.claim:
            self._hold(_address_of(created.claim), created.claim, asked_s)
        return created

    async def claim_work(self, limit: int) -> list[ClaimRunResponse]:
        """ClaimRunResponse runs that have work and no owner. Raises TurnwrightError."""
        asked_s = self._clock_s()
        claims = await self._granted(self._ledger.claim_work(limit, self._workspaces), lambda claims: claims)
        for claim in claims:
            self._hold(_address_of(claim), claim, asked_s)
        return claims

    async def _granted(self, asking: Coroutine[Any, Any, T], claims_of: Callable[[T], Sequence[ClaimRunResponse]]) -> T:
        """Await a claim.

        If the caller is cancelled meanwhile, claims may have been granted that nobody hears of: release them.
        """
        asked = detached(asking, name="claim")
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            returning = detached(self._return(asked, claims_of), name="return of a claim")
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            raise

    async def _return(self, asked: asyncio.Task[T], claims_of: Callable[[T], Sequence[ClaimRunResponse]]) -> None:
        """Release claims without a worker: otherwise they would count as lost by a dead owner."""
        with contextlib.suppress(TurnwrightError):
            for claim in claims_of(await asked):
                await self._ledger.release(_address_of(claim), claim.epoch)

    def _hold(self, address: RunAddress, claim: ClaimRunResponse, asked_s: float) -> None:
        held = self._held.get(address)
        # Answers to two claims may arrive in either order; the later epoch counts.
        if held is None or held.epoch < claim.epoch:
            self._term_s = claim.lease_ms / 1000
            self._held[address] = _HeldLease(claim.epoch, self._term_s, asked_s + self._term_s * WORK_SHARE)
            self._taken.set()

    @property
    def is_workspace_bound(self) -> bool:
        return bool(self._workspaces)

    def has_workspace(self, claim: ClaimRunResponse) -> bool:
        return not self._workspaces or claim.workspace_id in self._workspaces

    def held(self) -> int:
        """How many runs are held."""
        return len(self._held)

    def holds(self, address: RunAddress) -> bool:
        return address in self._held

    def ends_s(self, address: RunAddress) -> float:
        """When the lease of a run ends, by the executor's clock; in the past if it is not held.

        Nobody else owns the run before. Whatever this process cannot stop itself, because it may be stopped, must end
        by then.
        """
        held = self._held.get(address)
        return held.until_s + held.term_s * (1 - WORK_SHARE) if held else -inf

    async def confirm(self, address: RunAddress) -> None:
        """Make sure that we hold the lease right before an effect; calls the store only if little time is left.

        The remaining risk is a process that is paused between this and the effect. Raises LEASE_LOST, TurnwrightError.
        """
        held = self._held.get(address)
        if held and self._holder and held.until_s - self._clock_s() < held.term_s * (WORK_SHARE - START_SHARE):
            await self._renew(self._holder)
            held = self._held.get(address)
        if held is None:
            raise fault(Reason.LEASE_LOST, f"The run {address.run} now belongs to another executor.", run=address.run)

    async def give_back(self, address: RunAddress) -> None:
        """Release a run, if it is held. Never raises TurnwrightError: the lease would expire by itself."""
        held = self._held.get(address)
        if held is None:
            return
        with self.returning(address) as returned:
            try:
                await self._ledger.release(address, held.epoch)
            except TurnwrightError as error:
                _log.info("release_failed", run=address.run, reason=error.reason.name)
            returned()

    @contextlib.contextmanager
    def returning(self, address: RunAddress) -> Iterator[Callable[[], None]]:
        """Context for a call that may release the run: renewals must not report a loss.

        Call the yielded function once it did.
        """
        held = self._held.get(address)

        def returned() -> None:
            if held and self._held.get(address) is held:
                del self._held[address]

        if held:
            held.is_changing = True
        try:
            yield returned
        finally:
            if held:
                held.is_changing = False

    # Keeping -----------------------------------------------------------------------------------------------------

    async def _keep(self, holder: Holder, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        if self._registers:
            await self._renew_in_time(holder)
        while True:
            await self._until_due()
            await self._renew_in_time(holder)

    async def _until_due(self) -> None:
        while (wait_s := self._due_s() - self._clock_s()) > 0:
            self._taken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if isinf(wait_s) else wait_s):
                    await self._taken.wait()

    def _due_s(self) -> float:
        """When to renew: a third of a term after the oldest answer, with a pause after a failed attempt."""
        term_s = min((held.term_s for held in self._held.values()), default=self._term_s)
        dues = [held.until_s - held.term_s * (WORK_SHARE - 1 / RENEWALS) for held in self._held.values()]
        dues += [self._asked_s + term_s / RENEWALS] if self._registers else []
        ends = (held.until_s for held in self._held.values())
        return min(max(min(dues, default=inf), self._asked_s + term_s / TRIES), min(ends, default=inf))

    async def _renew_in_time(self, holder: Holder) -> None:
        """Renew, waiting no longer than work may go on without it; then stop what has expired."""
        self._asked_s = self._clock_s()
        first_end_s = min((held.until_s for held in self._held.values()), default=inf)
        left_s = min(self._term_s / RENEWALS, max(first_end_s - self._asked_s, 0.0))
        renewing = asyncio.create_task(self._try_to_renew(holder), name="renewal")
        self._renewing.append(renewing)
        if len(self._renewing) > RENEWALS:
            self._renewing.pop(0).cancel()
        await asyncio.wait({renewing}, timeout=left_s)
        if renewing.done():
            self._renewing.remove(renewing)
            renewing.result()
        else:
            # Not cancelled: if everything is slow, a late answer may still come before the end.
            _log.warning("renewal_delayed", runs=len(self._held))
        self._stop_what_is_over(holder)

    async def _try_to_renew(self, holder: Holder) -> None:
        try:
            await self._renew(holder)
        except TurnwrightError as error:
            _log.warning("renewal_failed", runs=len(self._held), reason=error.reason.name, detail=error.message)

    async def _renew(self, holder: Holder) -> None:
        asked_s = self._clock_s()
        asked = {address: held.epoch for address, held in self._held.items()}
        renewal = await self._ledger.renew(list(asked.items()), self._workspaces)
        self._term_s = renewal.lease_ms / 1000
        for (address, epoch), state in zip(asked.items(), renewal.states, strict=True):
            held = self._held.get(address)
            if held is None or held.epoch != epoch or held.is_changing:
                continue
            if not state.held:
                self._lose(holder, address, to_other=True)
                continue
            # Answers may arrive in another order than the requests.
            held.term_s = self._term_s
            held.until_s = max(held.until_s, asked_s + self._term_s * WORK_SHARE)
            if state.abort_requested:
                holder.abort(address)

    def _stop_what_is_over(self, holder: Holder) -> None:
        now_s = self._clock_s()
        for address in [address for address, held in self._held.items() if held.until_s <= now_s]:
            self._lose(holder, address, to_other=False)

    def _lose(self, holder: Holder, address: RunAddress, *, to_other: bool) -> None:
        epoch = self._held.pop(address).epoch
        _log.warning("lease_lost", run=address.run, epoch=epoch, to_other=to_other)
        count(LEASES_LOST)
        holder.on_lost(address, to_other=to_other)


def _address_of(claim: ClaimRunResponse) -> RunAddress:
    return RunAddress(claim.run.project, claim.run.run)
