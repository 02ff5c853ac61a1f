"""A thread pool for file work, so that slow disks and large trees delay nothing else.

Store calls, aborts and shutdown do not wait for it. Long work checks between steps whether its caller is still waiting.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from turnwright_kit.threads import DaemonThreadPool

FILES_MAX: Final = 16
"""Concurrent file operations of commands, over all runs."""

SCANS_MAX: Final = 4
"""Concurrent scans of projects; they may take long, and other commands do not wait for them."""

T = TypeVar("T")
Check = Callable[[], None]
"""Raises StoppedError if nobody waits for the work any more."""


class StoppedError(Exception):
    """Nobody waits for this work any more."""


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[DaemonThreadPool, DaemonThreadPool]] = WeakKeyDictionary()


async def on_files(work: Callable[[Check], T]) -> T:
    """Run some file work; returns or raises what it does."""
    files, _ = _pools_here()
    return await _until_cancelled(files, work)


async def on_trees(work: Callable[[Check], T]) -> T:
    """The same for work that scans a whole project."""
    _, trees = _pools_here()
    return await _until_cancelled(trees, work)


async def _until_cancelled(threads: DaemonThreadPool, work: Callable[[Check], T]) -> T:
    is_over = threading.Event()

    def check() -> None:
        if is_over.is_set():
            raise StoppedError

    try:
        return await threads.run(work, check)
    finally:
        is_over.set()


def _pools_here() -> tuple[DaemonThreadPool, DaemonThreadPool]:
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        _pools[loop] = DaemonThreadPool("files", FILES_MAX), DaemonThreadPool("scan", SCANS_MAX)
    return _pools[loop]
