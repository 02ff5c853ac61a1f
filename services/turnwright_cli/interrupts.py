"""Ctrl-C handling: the first aborts gracefully, the second exits at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Iterator
from typing import TypeVar

from turnwright_cli.exit_codes import INTERRUPTED

T = TypeVar("T")
_SHOW_CURSOR = "\x1b[?25h\x1b[0m"


class Interrupts:
    """Handles SIGINT and SIGTERM in a block. The first sets `asked`, the second ends the process."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.is_terminated = False
        """Whether the signal was SIGTERM, which does not come from the terminal."""

    @contextlib.contextmanager
    def entered(self) -> Iterator[Interrupts]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield self
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: int) -> None:
        if self.asked.is_set():
            leave_at_once()
        self.is_terminated = number == signal.SIGTERM
        self.asked.set()


async def unless_stopped(work: Awaitable[T], stop: Interrupts) -> T | None:
    """What the work returns; None if somebody asked to stop first, and it was cancelled."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.asked.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def leave_at_once() -> None:
    """End the process without waiting for anything, with the terminal restored."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout.isatty():
            sys.stdout.write(_SHOW_CURSOR)
        sys.stdout.flush()
    os._exit(INTERRUPTED)
