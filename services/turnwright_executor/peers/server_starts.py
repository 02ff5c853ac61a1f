"""Which starts of servers of tools this executor knows, so that a call for a run that it has lost is refused by each.

What a call names was known while its run was ours: nobody else owned the run before that start, so the server has seen
all epochs after ours, or has started again since and refuses the call.
Source: docs/adr/0081.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final
from weakref import WeakKeyDictionary

import grpc
from msgspec import Struct
from turnwright.tool.v1 import tool_service_pb2 as pb

from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.tools.remote import CallFailedError

KNOWN_S: Final = 60.0
"""Seconds after which a start is asked for again: until then no two clocks drift apart by more than milliseconds."""

ID_CHARS_MAX: Final = 64
CLOCK_S_MAX: Final = 1e10
"""What is believed of a server's clock, in seconds: three hundred years."""


class _Known(Struct, frozen=True):
    id: str = ""
    ahead_s: float | None = None
    """How far the server's clock is ahead of ours at least: what its answer took is not known, so leases end early."""
    since_s: float = -inf


class ServerStarts:
    """The starts that the servers behind connections have named last."""

    def __init__(self, ends_s: Callable[[RunAddress], float], now_s: Callable[[], float]) -> None:
        """`ends_s`: when the lease of a run ends, by the clock `now_s`; in the past if it is not held."""
        self._ends_s, self._now_s = ends_s, now_s
        self._known: WeakKeyDictionary[grpc.aio.Channel, _Known] = WeakKeyDictionary()

    def fence(self, request: pb.DispatchRequest, channel: grpc.aio.Channel) -> None:
        """Put into a call of an owner which start is known, and until when the run is ours. Raises CallFailedError."""
        if not request.epoch:
            return
        known, now_s = self._known.get(channel, _Known()), self._now_s()
        ends_s = self._ends_s(RunAddress(request.project, request.run))
        if ends_s <= now_s:
            text = f"This executor has no lease of the run {request.run} any more, and has not called {request.tool}."
            raise CallFailedError("conflict:409", text, is_sent=False)
        if now_s - known.since_s > KNOWN_S:
            known = _Known()
        request.start = known.id
        request.ClearField("lease_end")
        if known.ahead_s is not None:
            request.lease_end.FromNanoseconds(round(min(max(0.0, ends_s + known.ahead_s), CLOCK_S_MAX) * 1e9))

    def update(self, start: pb.ServerStart, channel: grpc.aio.Channel) -> None:
        """A server has named its start."""
        now_s = self._now_s()
        ahead_s = start.clock.ToNanoseconds() / 1e9 - now_s if start.HasField("clock") else None
        self._known[channel] = _Known(start.id[:ID_CHARS_MAX], ahead_s, now_s)
