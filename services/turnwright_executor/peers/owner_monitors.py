"""Monitors: who owns the runs that are watched at this executor, looked up once for all watchers of a run.

Source: architecture 7 (any replica answers for any run).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from turnwright_core.errors import TurnwrightError
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.owners import OwnerLocation, Owners
from turnwright_executor.watching.hub import HubEndedError, RunHub
from turnwright_kit.scope import detached

SLOWER_MAX: Final = 3
"""Maximum factor by which the interval between ownership checks grows: many runs may wait at once."""

AVOIDED_LOOKS: Final = 10
"""Ownership checks for which an unresponsive owner is not tried again."""


class _Monitor(Struct):
    """The monitor of one run."""

    avoided: str
    """Address of an owner that does not answer."""
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when another executor owns the run."""
    looks: int = 0
    watchers: int = 0
    task: asyncio.Task[None] | None = None


class OwnerMonitors:
    """The monitors of the runs that are watched; each ends with the last of its watchers."""

    def __init__(self, owners: Owners, poll_s: float) -> None:
        """`poll_s` is the interval between ownership checks."""
        self._owners = owners
        self._poll_s = poll_s
        self._monitors: dict[RunHub, _Monitor] = {}

    @contextlib.contextmanager
    def hold(self, hub: RunHub, avoided: str) -> Iterator[asyncio.Event]:
        """Set the event, and wake the watchers of the hub, when another executor owns the run.

        `avoided` is the address of an owner that did not answer: it counts again only after AVOIDED_LOOKS.
        """
        monitor = self._monitors.get(hub)
        if monitor is None:
            monitor = self._monitors[hub] = _Monitor(avoided)
            monitor.task = detached(self._follow(hub, monitor), name=f"owner of {hub.address.run}")
        elif avoided:
            monitor.avoided, monitor.looks = avoided, 0
        monitor.watchers += 1
        try:
            yield monitor.moved
        finally:
            monitor.watchers -= 1
            if not monitor.watchers and monitor.task:
                self._forget(hub, monitor)
                monitor.task.cancel()

    def _forget(self, hub: RunHub, monitor: _Monitor) -> None:
        if self._monitors.get(hub) is monitor:
            del self._monitors[hub]

    async def _follow(self, hub: RunHub, monitor: _Monitor) -> None:
        """Look every now and then, and when the hub has told of work; not while the run rests or is owned here."""
        starts = hub.starts
        with contextlib.suppress(HubEndedError):
            while True:
                is_notified = await _started(hub, starts, self._wait_s(monitor.looks))
                starts = hub.starts
                if self._owners.is_here(hub.address):
                    continue
                monitor.looks += not is_notified
                found = await self._found(hub.address)
                if found.address and (found.address != monitor.avoided or monitor.looks >= AVOIDED_LOOKS):
                    break
                if not found.has_work:
                    await _started(hub, starts, None)
            # Whoever comes now finds the new owner; if that does not answer, there will be another monitor.
            self._forget(hub, monitor)
            monitor.moved.set()
            hub.wake()

    async def moved_from(self, owner: str, address: RunAddress, received: asyncio.Event) -> None:
        """Wait until this executor or a third one owns a run; `received` is set with each event of the owner."""
        looks = 0
        while True:
            await asyncio.sleep(self._wait_s(looks))
            received.clear()
            if self._owners.is_here(address):
                return
            looks += 1
            found = await self._found(address)
            if found.address not in ("", owner):
                return
            if not found.has_work:
                await received.wait()

    def _wait_s(self, looks: int) -> float:
        return self._poll_s * min(looks + 1, SLOWER_MAX)

    async def _found(self, address: RunAddress) -> OwnerLocation:
        """The owner; while the store does not answer, it is as if there was none."""
        try:
            return await self._owners.find(address)
        except TurnwrightError:
            return OwnerLocation("", has_work=True)


async def _started(hub: RunHub, starts: int, timeout_s: float | None) -> bool:
    """Whether the hub tells of work within this time. Raises HubEndedError."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await hub.until(lambda hub: hub.starts != starts)
            return True
    return False
