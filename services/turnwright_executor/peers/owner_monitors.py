"""Monitors: who owns the runs that are watched at this executor, looked up once for all who watch a run at one place.

Source: architecture 7 (any replica answers for any run).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct, field

from turnwright_core.errors import TurnwrightError
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.owners import Owners
from turnwright_executor.watching.hub import RunHub
from turnwright_kit.scope import detached

SLOWER_MAX: Final = 3
"""Maximum factor by which the interval between ownership checks grows: many runs may wait at once."""

AVOIDED_LOOKS: Final = 10
"""Ownership checks for which an unresponsive owner is not tried again."""


class Monitor(Struct):
    """The monitor of one run, for all who watch it at one place."""

    place: tuple[RunAddress, str]
    """The run, and the epoch of its hub here or the address of the owner where it is watched."""
    owner: str
    """The same address; empty for this executor."""
    active: asyncio.Event
    """Set when somebody may have work on the run."""
    avoided: str = ""
    """Address of an owner that does not answer."""
    looks: int = 0
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the run is owned elsewhere."""
    leave: list[Callable[[], object]] = field(default_factory=list)
    """Called then, one for each watcher."""
    task: asyncio.Task[None] | None = None


class OwnerMonitors:
    """The monitors of the runs that are watched; each ends with the last of its watchers."""

    def __init__(self, owners: Owners, poll_s: float) -> None:
        """`poll_s` is the interval between ownership checks."""
        self._owners = owners
        self._poll_s = poll_s
        self._monitors: dict[tuple[RunAddress, str], Monitor] = {}

    def here(self, hub: RunHub, avoided: str) -> contextlib.AbstractContextManager[Monitor]:
        """Have the watchers of a hub leave when another executor owns the run.

        `avoided` is the address of an owner that did not answer: it counts again only after AVOIDED_LOOKS.
        """
        return self._hold(Monitor((hub.address, hub.epoch), "", hub.active, avoided), hub.leave)

    def there(
        self, address: RunAddress, owner: str, leave: Callable[[], object]
    ) -> contextlib.AbstractContextManager[Monitor]:
        """Call `leave` when `owner` no longer owns a run, but this executor or a third one does.

        The caller sets `active` with each event of the owner.
        """
        return self._hold(Monitor((address, owner), owner, asyncio.Event()), leave)

    @contextlib.contextmanager
    def _hold(self, new: Monitor, leave: Callable[[], object]) -> Iterator[Monitor]:
        monitor = self._monitors.setdefault(new.place, new)
        if monitor is new:
            monitor.task = detached(self._follow(monitor), name=f"owner of {monitor.place[0].run}")
        elif new.avoided:
            monitor.avoided, monitor.looks = new.avoided, 0
        monitor.leave.append(leave)
        try:
            yield monitor
        finally:
            monitor.leave.remove(leave)
            if monitor.task and not (monitor.leave or monitor.moved.is_set()):
                del self._monitors[monitor.place]
                monitor.task.cancel()

    async def _follow(self, monitor: Monitor) -> None:
        """Look every now and then, and when a hub has told of work; not while the run rests or is owned here."""
        (address, _), owner = monitor.place, monitor.owner
        monitor.active.clear()
        while True:
            pause_s = self._poll_s * min(monitor.looks + 1, SLOWER_MAX)
            is_notified = False
            if owner:
                # Its events are many: they only end a rest.
                await asyncio.sleep(pause_s)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        is_notified = await monitor.active.wait()
            monitor.active.clear()
            if self._owners.is_here(address):
                if owner:
                    break
                continue
            monitor.looks += not is_notified
            try:
                found = await self._owners.find(address)
            except TurnwrightError:
                # While the store does not answer, it is as if there was no owner.
                continue
            if found.address not in ("", owner) and (
                found.address != monitor.avoided or monitor.looks >= AVOIDED_LOOKS
            ):
                break
            if not found.has_work:
                await monitor.active.wait()
        # Whoever comes now finds the new owner; if that does not answer, there will be another monitor.
        del self._monitors[monitor.place]
        monitor.moved.set()
        for leave in monitor.leave:
            leave()
