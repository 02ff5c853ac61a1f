"""The end of a command: whatever still runs in the process, it ends with the exit code of its work.

An event loop waits for its threads when it closes, without a deadline, and so does gRPC when Python takes the process
apart, where its own thread may never be answered. What a command did is stored and told by then.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Final, NoReturn

CLOSE_S: Final = 5.0
"""Seconds that the event loop may take to close once the work has ended, its threads included: whatever needs longer
is stopped already, or was never going to end."""


def leave(code: int) -> NoReturn:
    """End the process now, with nothing but what was printed brought to its end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _leave_with(outcome: int | BaseException) -> NoReturn:
    """End the process with a code, or with what its error is worth, which nobody would be told of otherwise."""
    code = outcome if isinstance(outcome, int) else 1
    try:
        if isinstance(outcome, BaseException):
            code = _told(outcome)
    finally:
        leave(code)


def _told(error: BaseException) -> int:
    """Say what went wrong; the exit code."""
    # Leaving alone, as --help does, needs none of what this loads.
    import asyncio  # noqa: PLC0415

    from turnwright_cli.crash_report import report  # noqa: PLC0415
    from turnwright_cli.exit_codes import INTERRUPTED  # noqa: PLC0415

    return INTERRUPTED if isinstance(error, asyncio.CancelledError) else report(error)


@contextlib.contextmanager
def watched(work: Coroutine[Any, Any, int], leave_s: float) -> Iterator[Coroutine[Any, Any, int]]:
    """The same work; once it has ended, what is left of the block may take so many seconds, then the process ends."""
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
