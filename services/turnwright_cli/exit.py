"""Process exit: a command ends with the exit code of its work, whatever is still running in the process.

When an event loop closes, it waits for its threads without a deadline, and so does gRPC at interpreter shutdown, where
its own thread may never be answered. By then everything is stored and printed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Final, NoReturn

CLOSE_S: Final = 5.0
"""Seconds that closing the event loop and its threads may take after the work has ended.

Whatever takes longer has already been stopped, or would never end.
"""


def leave(code: int) -> NoReturn:
    """Flush the output and end the process at once."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _leave_with(outcome: int | BaseException) -> NoReturn:
    """End the process with a code, or with the code of an error that would otherwise be lost."""
    code = outcome if isinstance(outcome, int) else 1
    try:
        if isinstance(outcome, BaseException):
            code = _told(outcome)
    finally:
        leave(code)


def _told(error: BaseException) -> int:
    """Print what went wrong; returns the exit code."""
    # Exiting right away, as --help does, needs none of these imports.
    import asyncio  # noqa: PLC0415

    from turnwright_cli.crash_report import report  # noqa: PLC0415
    from turnwright_cli.exit_codes import INTERRUPTED  # noqa: PLC0415

    return INTERRUPTED if isinstance(error, asyncio.CancelledError) else report(error)


@contextlib.contextmanager
def watched(work: Coroutine[Any, Any, int], leave_s: float) -> Iterator[Coroutine[Any, Any, int]]:
    """Await the work; the rest of the block then has this many seconds before the process ends."""
    timers: list[threading.Timer] = []

    async def bounded() -> int:
        outcome: int | BaseException = 0
        try:
            outcome = await work
        except BaseException as error:
            outcome = error
            raise
        finally:
            timers.append(threading.Timer(leave_s, _leave_with, (outcome,)))
            timers[0].daemon = True
            timers[0].start()
        return outcome

    try:
        yield bounded()
    finally:
        for timer in timers:
            timer.cancel()
