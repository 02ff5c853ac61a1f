"""Temporary files of writes that never ended, because their executor was killed: told by their names, and swept.

A write makes its file beside the one that it replaces, so what is left of it may lie in any folder of a project. When
an executor opens a project for the first time it looks for such files, in the background, and removes those that are
too old to belong to a write which is under way elsewhere. It walks by descriptors and follows no link, so that nothing
outside of the project is reached whatever somebody puts in the way meanwhile.
Source: architecture 6, 11.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final
from uuid import uuid4

from turnwright_core.kit.logs import get_logger
from turnwright_core.kit.scope import detached
from turnwright_executor.edge.file_threads import Check, on_trees

SWEEP_AGE_S: Final = 3600.0
"""Seconds since its last change after which a temporary file is nobody's: a write takes parts of one."""

SWEEP_ENTRIES_MAX: Final = 200_000
"""Most files that a sweep looks at; the root may be a whole disk."""

PASSED_BY: Final = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", "site-packages"})
"""Folders that a sweep leaves out: others' own, and large."""

_SUFFIX: Final = ".tmp"
_NAME: Final = re.compile(r"\.[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}\.tmp")

_log = get_logger("leftovers")


def temporary_name() -> str:
    return f".{uuid4().hex}{_SUFFIX}"


def is_temporary(name: str) -> bool:
    return name.endswith(_SUFFIX) and _NAME.fullmatch(name) is not None


def sweep(root: str, before_s: float, check: Check = lambda: None) -> int:
    """Remove the temporary files below a root that changed last before a time of the epoch; how many there were."""
    swept = left = 0
    for folder, names in _folders(root):
        check()
        left += len(names)
        if left > SWEEP_ENTRIES_MAX:
            break
        swept += sum(_removed(name, folder, before_s) for name in names if is_temporary(name))
    return swept


def _folders(root: str) -> Iterator[tuple[int, list[str]]]:
    for _, folders, names, descriptor in os.fwalk(root, follow_symlinks=False):
        folders[:] = [name for name in folders if name not in PASSED_BY]
        yield descriptor, names


def _removed(name: str, folder: int, before_s: float) -> bool:
    """Whether a file was old enough and is gone now; a link or anything else is left alone."""
    with suppress(OSError):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode) and found.st_mtime < before_s:
            os.unlink(name, dir_fd=folder)
            return True
    return False


class Sweeper:
    """Sweeps each root once in this executor's time."""

    def __init__(self, age_s: float = SWEEP_AGE_S, clock_s: Callable[[], float] = time.time) -> None:
        """`age_s` is how old a file must be, in seconds; `clock_s` that of the files, in seconds of the epoch."""
        self._age_s = age_s
        self._clock_s = clock_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False

    def open(self, root: str) -> None:
        """A project is opened: sweep its root in the background, unless that was done."""
        if root not in self._tasks and not self._is_closed:
            self._tasks[root] = detached(self._sweep(root), name=f"sweep {root}")

    async def _sweep(self, root: str) -> None:
        # A tree may be deeper than can be walked: what is below stays.
        with suppress(OSError, RecursionError):
            swept = await on_trees(lambda check: sweep(root, self._clock_s() - self._age_s, check))
            if swept:
                _log.info("leftovers_swept", root=root, files=swept)

    async def close(self) -> None:
        self._is_closed = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
