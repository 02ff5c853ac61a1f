"""Where work on files happens: in threads of its own, so that slow disks and large trees hold up nothing but files.

Store calls, aborts and the end of the process do not wait for it. It stops with its caller: whatever is long looks
between two steps whether somebody still waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from turnwright_core.kit.threads import Threads

FILES_MAX: Final = 16
"""Commands whose files are read or written at the same time, of all runs together."""

SCANS_MAX: Final = 4
"""Projects that are looked through at the same time: it may take long, and other commands do not wait for it."""

T = TypeVar("T")
Check = Callable[[], None]
"""Raises StoppedError where nobody waits for the work any more."""


class StoppedError(Exception):
    """Nobody waits for this work any more."""


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Threads, Threads]] = WeakKeyDictionary()


async def on_files(work: Callable[[Check], T]) -> T:
    """What work on some files returns; raises what it raises."""
    files, _ = _pools_here()
    return await _until_cancelled(files, work)


async def on_trees(work: Callable[[Check], T]) -> T:
    """The same for work that looks through a whole project."""
    _, trees = _pools_here()
    return await _until_cancelled(trees, work)


async def _until_cancelled(threads: Threads, work: Callable[[Check], T]) -> T:
    is_over = threading.Event()

    def check() -> None:
        if is_over.is_set():
            raise StoppedError

    try:
        return await threads.run(work, check)
    finally:
        is_over.set()


def _pools_here() -> tuple[Threads, Threads]:
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        _pools[loop] = Threads("files", FILES_MAX), Threads("scan", SCANS_MAX)
    return _pools[loop]
