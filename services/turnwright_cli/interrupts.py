"""Signals: the first Ctrl-C aborts gracefully, the second exits at once; a terminal that vanishes ends the command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from turnwright_cli.exit_codes import HUNG_UP, INTERRUPTED
from turnwright_cli.plugin_output import own_stdout

T = TypeVar("T")
_SHOW_CURSOR = "\x1b[?25h\x1b[0m"


class Interrupts:
    """Handles SIGINT and SIGTERM in a block. The first sets `asked`, the second ends the process."""

    def __init__(self, restore: Callable[[], None] = lambda: None) -> None:
        """`restore` gives the terminal back before the process ends."""
        self._restore = restore
        self.asked = asyncio.Event()
        self.is_terminated = False
        """Whether the signal was SIGTERM, which does not come from the terminal."""

    @contextlib.contextmanager
    def entered(self) -> Iterator[Interrupts]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self.interrupt, number)
        try:
            yield self
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def interrupt(self, number: int) -> None:
        if self.asked.is_set():
            self._restore()
            with contextlib.suppress(OSError, ValueError):
                if sys.stdout.isatty():
                    own_stdout().write(_SHOW_CURSOR)
                sys.stdout.flush()
            os._exit(INTERRUPTED)
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


async def until_hangup(work: Awaitable[int]) -> int:
    """The exit code of a command, which is cancelled when its terminal vanishes: loops stay as they are, services stop.

    `nohup` has SIGHUP ignored; then the command goes on.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    hung_up = asyncio.Event()

    def leave() -> None:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        if task and not hung_up.is_set():
            hung_up.set()
            task.cancel()

    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, leave)
    try:
        return await work
    except asyncio.CancelledError:
        if hung_up.is_set():
            return HUNG_UP
        raise


def hang_up() -> None:
    """What the kernel does for a terminal that controls the process."""
    os.kill(os.getpid(), signal.SIGHUP)
