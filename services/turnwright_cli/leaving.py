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
from typing import Any, NoReturn


def leave(code: int) -> NoReturn:
    """End the process now, with nothing but what was printed brought to its end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


@contextlib.contextmanager
def watched(work: Coroutine[Any, Any, int], leave_s: float) -> Iterator[Coroutine[Any, Any, int]]:
    """The same work; once it has ended, what is left of the block may take so many seconds, then the process ends."""
    # Leaving alone, as --help does, needs none of what this loads.
    from turnwright_cli.exits import FAILED  # noqa: PLC0415

    timers: list[threading.Timer] = []

    async def bounded() -> int:
        code = FAILED
        try:
            code = await work
        finally:
            timers.append(threading.Timer(leave_s, leave, (code,)))
            timers[0].daemon = True
            timers[0].start()
        return code

    try:
        yield bounded()
    finally:
        for timer in timers:
            timer.cancel()
