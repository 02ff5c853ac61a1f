"""The event loop of our processes: uvloop, with a repair for gRPC.

gRPC's poller thread announces each finished operation by one byte in a socket; the loop's reader takes one byte a round
and handles every operation that is there. So a busy loop, with few and long rounds, leaves bytes behind, until some 278
of them fill the socket: then the poller waits, and all calls of the process advance by one operation a round. With 64
runs at work a health check took 19 seconds that way. Here the reader finds one byte at most.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from weakref import WeakSet

import uvloop

from turnwright_kit.telemetry import observe
from turnwright_kit.telemetry_names import LOOP_LAG

DRAINED_BYTES: Final = 4096
"""Bytes taken at once; the socket holds fewer."""

LOOK_S: Final = 0.5
"""Seconds between two looks at how late the loop is."""

KEPT_S: Final = 30.0
"""Seconds for which the worst lag is kept at least, so that whoever reads it less often than LOOK_S sees it."""

_GRPC: Final = "grpc."


class EventLoop(uvloop.Loop):
    """A loop on which gRPC's readers find one byte at most."""

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """As in asyncio."""
        if _is_of_grpc(callback):
            callback = partial(self.read_last, fd, callback)
        super().add_reader(fd, callback, *args)

    @staticmethod
    def read_last(sock: socket.socket, callback: Callable[..., object], *args: object) -> None:
        """Call a reader that takes one byte, after all but the last one were taken for it."""
        try:
            waiting = len(sock.recv(DRAINED_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            # gRPC would wait for it, and everything else too.
            return
        if waiting > 1:
            # What comes meanwhile stays, and calls the reader again.
            os.read(sock.fileno(), waiting - 1)
        callback(*args)


class LoopLag:
    """How late an event loop is with what is due: everything that it does waits as long."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Look from now on."""
        self._loop = loop
        self._clock_s = clock_s
        self._worst_s = self._before_s = 0.0
        self._since_s = clock_s()
        self._await_next()

    def _await_next(self) -> None:
        self._due_s = self._clock_s() + LOOK_S
        self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        now_s = self._clock_s()
        if now_s - self._since_s >= KEPT_S:
            self._before_s, self._worst_s, self._since_s = self._worst_s, 0.0, now_s
        self._worst_s = max(self._worst_s, now_s - self._due_s)
        self._await_next()

    def worst_s(self) -> float:
        """The worst lag of the last moments, in seconds; also from another thread, while the loop is stuck."""
        return max(self._before_s, self._worst_s, self._clock_s() - self._due_s)


_reported: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()


def report_lag(loop: asyncio.AbstractEventLoop) -> None:
    """Have the lag of a loop measured, once for all servers on it."""
    if loop not in _reported:
        _reported.add(loop)
        observe(LOOP_LAG, LoopLag(loop).worst_s)


def _is_of_grpc(callback: Callable[..., object]) -> bool:
    owner = getattr(getattr(callback, "func", callback), "__self__", None)
    return type(owner).__module__.startswith(_GRPC)
