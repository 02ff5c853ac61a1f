"""The folders of a project in which something happened, reported by the kernel (inotify).

This saves a scan of every file at the end of each turn. It is trusted only where it can be complete: on local file
systems, with every folder watched before its files are read, no event lost, and the same root. Anything else counts as
"may have changed". Changes that the kernel does not report (a write through an open memory mapping, or through a hard
link outside the project) are found by the full scan every FULL_EVERY_S.
Source: inotify(7), "Limitations and caveats"; inotify_simple (https://inotify-simple.readthedocs.io/).
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Collection
from itertools import takewhile
from typing import Final

import inotify_simple
from inotify_simple import flags, masks

from turnwright_executor.files.mounts import MOUNTS, Mount
from turnwright_kit.logs import get_logger

FULL_EVERY_S: Final = 30.0
"""Seconds after which a full scan is due, whatever the kernel has reported."""

FOLDERS_MAX: Final = 4_096
"""Maximum number of watched folders for one reader; a larger project is scanned in each turn."""

_EVENTS: Final = (
    (flags.MODIFY | flags.ATTRIB | flags.CLOSE_WRITE)
    | (flags.CREATE | flags.DELETE | masks.MOVE)
    | (flags.DELETE_SELF | flags.MOVE_SELF)
    | (flags.ONLYDIR | flags.DONT_FOLLOW)
)
_LOST: Final = flags.Q_OVERFLOW | flags.IGNORED | flags.UNMOUNT | flags.DELETE_SELF | flags.MOVE_SELF

_log = get_logger("folders")


class FolderWatch:
    """Watches the folders of one project for one reader, which uses one thread at a time."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._queue: _Queue | None = None
        self._seen = 0
        """Number of the last event that this reader has received."""
        self.folders: frozenset[str] = frozenset()
        """The watched folders."""
        self._is_off = False
        """Whether this project cannot be watched."""

    def detach(self) -> None:
        """Become a reader of its own that has received what the one has that this is a copy of."""
        if self._queue:
            self._queue.join(self)

    def changed(self) -> Collection[str] | None:
        """The folders with changes since the last call; None if unknown."""
        if self._queue is None:
            return None
        try:
            self._seen, changed = self._queue.changed(self._seen)
        except _LostError:
            self.forget()
            return None
        return changed & self.folders

    def follow(self, folders: Collection[str]) -> bool:
        """Watch exactly these folders below the root; returns whether all of them were already watched.

        If not, something may have happened before: scan again, and ask again.
        """
        if self._is_off or len(folders) > FOLDERS_MAX:
            self.forget()
            return False
        try:
            return self._follow(frozenset(folders))
        except (OSError, AttributeError) as error:
            # No inotify here, no more watches for this user, or a folder that is gone by now.
            _log.debug("folder_watch_refused", root=self._root, detail=str(error))
            self._is_off = not isinstance(error, FileNotFoundError | NotADirectoryError | _LostError)
            self.forget()
            return False

    def _follow(self, folders: frozenset[str]) -> bool:
        if self._queue is None:
            self._queue = _queue_of(self._root)
            self._seen = self._queue.join(self)
        # Another reader's watch proves nothing: this reader may have read the folder before that.
        were_watched = folders <= self.folders
        self.folders = folders
        self._queue.watch(folders)
        return were_watched

    def forget(self) -> None:
        self._queue = None
        self.folders = frozenset()


class _LostError(OSError):
    """Events may have been lost: the queue is closed, and the next reader opens another."""


class _Queue:
    """The inotify queue of one project, shared by all readers in this process; closed with the last one.

    It is shared because a user has few of these (128), and each change is then reported once.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._identity = _identity(root)
        self._lock = threading.Lock()
        self._readers = weakref.WeakSet[FolderWatch]()
        self._folders: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._count = 0
        self._last: dict[str, int] = {}
        """Number of the last event of each folder, in order."""
        self._inotify = inotify_simple.INotify(nonblocking=True)
        self._close = weakref.finalize(self, self._inotify.close)

    @property
    def is_lost(self) -> bool:
        return not self._close.alive

    def join(self, reader: FolderWatch) -> int:
        """The number of the last event before the reader came."""
        with self._lock:
            self._readers.add(reader)
            return self._count

    def changed(self, since: int) -> tuple[int, frozenset[str]]:
        """The number of the last event, and the folders with events after `since`. Raises _LostError."""
        with self._lock:
            self._read()
            later = takewhile(lambda folder: self._last[folder] > since, reversed(self._last))
            return self._count, frozenset(later)

    def _read(self) -> None:
        self._check()
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW or (event.mask & _LOST and event.wd in self._names):
                self._close()
                break
            if event.wd in self._names:
                self._count += 1
                folder = self._names[event.wd]
                self._last.pop(folder, None)
                self._last[folder] = self._count
        if self._identity != _identity(self._root):
            self._close()
        self._check()

    def _check(self) -> None:
        if self.is_lost:
            raise _LostError

    def watch(self, folders: frozenset[str]) -> None:
        """Watch these folders, and only those that readers need. Raises OSError, _LostError."""
        with self._lock:
            self._check()
            for folder in folders - self._folders.keys():
                self._add(folder)
            for folder in self._folders.keys() - folders:
                if not any(folder in reader.folders for reader in self._readers):
                    self._remove(folder)

    def _add(self, folder: str) -> None:
        path = os.path.join(self._root, folder)
        device = self._identity[0] if self._identity else -1
        if os.stat(path).st_dev != device or not MOUNTS.is_local(device):
            raise OSError(errno.EXDEV, "its changes may come from elsewhere", path)
        watch = self._inotify.add_watch(path, _EVENTS)
        self._folders[folder], self._names[watch] = watch, folder

    def _remove(self, folder: str) -> None:
        watch = self._folders.pop(folder)
        self._last.pop(folder, None)
        del self._names[watch]
        self._inotify.rm_watch(watch)


_queues: Final = weakref.WeakValueDictionary[str, _Queue]()
_opening: Final = threading.Lock()


def _queue_of(root: str) -> _Queue:
    """The queue of a project in this process. Raises OSError if there are none left."""
    with _opening:
        queue = _queues.get(root)
        if queue is None or queue.is_lost:
            queue = _queues[root] = _Queue(root)
        return queue


def _identity(root: str) -> tuple[int, int, tuple[Mount, ...]] | None:
    """What a root is: another folder may take its name, and something may be mounted over a folder that is watched."""
    try:
        status = os.stat(root)
    except OSError:
        return None
    return status.st_dev, status.st_ino, MOUNTS.mounts_below(root)
