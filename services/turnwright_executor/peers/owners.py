"""Service discovery between executors: which executor owns a run, and connections to the others.

Source: architecture 7 (any replica answers for any run), 3 (the lease names its owner's address).
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Final

import grpc
from msgspec import Struct

from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.remote_service import CHANNEL_OPTIONS
from turnwright_core.rpc.transport import open_channel
from turnwright_core.runs import QUEUED, RUNNING
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import Ledger

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
