"""Service discovery between executors: which executor owns a run, and connections to the others.

Who owns the runs that are watched at this executor is looked up once for all who watch a run at one place.
Source: architecture 7 (any replica answers for any run), 3 (the lease names its owner's address).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import grpc
from msgspec import Struct, field

from turnwright_core.errors import TurnwrightError
from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.remote_service import CHANNEL_OPTIONS
from turnwright_core.rpc.transport import open_channel
from turnwright_core.runs import QUEUED, RUNNING
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.watching.hub import RunHub
from turnwright_kit.scope import detached

CHANNELS_MAX: Final = 64
"""Idle connections to other executors that are kept; the least recently used one is closed."""


class OwnerLocation(Struct, frozen=True):
    """The owner of a run: the address of another executor, empty for this one or none; and whether it has work."""

    address: str
    has_work: bool


class Owners:
    """Looks up owners, and keeps connections to them."""

    def __init__(self, ledger: Ledger, is_held: Callable[[RunAddress], bool], tls: Tls) -> None:
        """`is_held` says whether this executor owns a run."""
        self._ledger = ledger
        self._own_address = ""
        self.is_here = is_held
        self._tls = tls
        self._channels: OrderedDict[str, grpc.aio.Channel] = OrderedDict()
        self._used: Counter[str] = Counter()
        """Calls in progress, including watches, by address."""

    def reached_at(self, own_address: str) -> None:
        self._own_address = own_address

    async def find(self, address: RunAddress) -> OwnerLocation:
        """The owner of a run. Raises TurnwrightError."""
        if self.is_here(address):
            return OwnerLocation("", has_work=True)
        holding = await self._ledger.holding(address)
        # The previous process at our address has ended: the rest of its lease expires by itself.
        is_remote = bool(holding.owner) and holding.address != self._own_address
        return OwnerLocation(holding.address if is_remote else "", holding.run_status in (QUEUED, RUNNING))

    @contextlib.asynccontextmanager
    async def connected(self, address: str) -> AsyncIterator[grpc.aio.Channel]:
        """The connection to another executor, kept at least for the duration of the block."""
        self._used[address] += 1
        channel = self._channels.pop(address, None) or open_channel(address, CHANNEL_OPTIONS, self._tls)
        self._channels[address] = channel
        try:
            yield channel
        finally:
            self._used[address] -= 1
            await self._close_spare()

    async def _close_spare(self) -> None:
        """Close idle connections beyond the limit, the least recently used first."""
        self._used = +self._used
        unused = [address for address in self._channels if not self._used[address]]
        spare = max(0, len(self._channels) - CHANNELS_MAX)
        for channel in [self._channels.pop(address) for address in unused[:spare]]:
            await channel.close()

    async def close(self) -> None:
        while self._channels:
            await self._channels.popitem()[1].close()


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
