"""In which folders of a project something has happened, as the kernel tells it (inotify).

It saves looking at every file of a project at the end of each turn. It is only believed where it can be complete: on
file systems of this machine, with every folder watched before its files are read, no event lost, and the root still the
same. Everything else is a "may have changed". What the kernel does not tell (a write through a mapping of memory that
stays open, or through a hard link outside of the project) is found by the look that is due every FULL_EVERY_S.
Source: inotify(7), "Limitations and caveats"; inotify_simple (https://inotify-simple.readthedocs.io/).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import Final

import inotify_simple
from inotify_simple import INotify, flags, masks

from turnwright_core.kit.logs import get_logger

FULL_EVERY_S: Final = 30.0
"""Seconds after which everything is looked at once more, whatever the kernel has told."""

FOLDERS_MAX: Final = 4_096
"""Most folders that are watched for one run; a project with more is looked through at each turn."""

_LOCAL: Final = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems whose changes all come from this kernel."""

_EVENTS: Final = (
    (flags.MODIFY | flags.ATTRIB | flags.CLOSE_WRITE)
    | (flags.CREATE | flags.DELETE | masks.MOVE)
    | (flags.DELETE_SELF | flags.MOVE_SELF)
    | (flags.ONLYDIR | flags.DONT_FOLLOW)
)
_LOST: Final = flags.Q_OVERFLOW | flags.IGNORED | flags.UNMOUNT | flags.DELETE_SELF | flags.MOVE_SELF

_log = get_logger("folders")


class FolderWatch:
    """Watches the folders of one project for one reader. Not safe for threads."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._inotify: INotify | None = None
        self._folders: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._identity: tuple[int, int] | None = None
        self._is_off = False
        """Whether this project cannot be watched."""

    def changed(self) -> Collection[str] | None:
        """The folders in which something happened since the last call; None where that is not known."""
        if self._inotify is None:
            return None
        changed = set()
        for event in self._inotify.read(timeout=0):
            if event.mask & flags.Q_OVERFLOW or (event.mask & _LOST and event.wd in self._names):
                self.forget()
                return None
            if event.wd in self._names:
                changed.add(self._names[event.wd])
        if self._identity != _identity(self._root):
            self.forget()
            return None
        return changed

    def follow(self, folders: Collection[str]) -> bool:
        """Watch these folders below the root, and no others; whether all of them were watched before.

        Where they were not, something may have happened before they were: look again, and ask again.
        """
        if self._is_off or len(folders) > FOLDERS_MAX:
            self.forget()
            return False
        try:
            return self._follow(folders)
        except (OSError, AttributeError) as error:
            # No inotify here, no more watches for this user, a folder that is gone by now.
            _log.debug("folder_watch_refused", root=self._root, detail=str(error))
            self._is_off = not isinstance(error, FileNotFoundError | NotADirectoryError)
            self.forget()
            return False

    def _follow(self, folders: Collection[str]) -> bool:
        if self._inotify is None:
            self._inotify = inotify_simple.INotify(nonblocking=True)
            weakref.finalize(self, self._inotify.close)
            self._identity = _identity(self._root)
        device = self._identity[0] if self._identity else -1
        fresh = [folder for folder in folders if folder not in self._folders]
        for folder in fresh:
            path = os.path.join(self._root, folder)  # noqa: PTH118
            if os.stat(path).st_dev != device or not _is_local(device):  # noqa: PTH116
                self._is_off = True
                self.forget()
                return False
            watch = self._inotify.add_watch(path, _EVENTS)
            self._folders[folder], self._names[watch] = watch, folder
        for folder in self._folders.keys() - set(folders):
            watch = self._folders.pop(folder)
            del self._names[watch]
            self._inotify.rm_watch(watch)
        return not fresh

    def forget(self) -> None:
        if self._inotify:
            self._inotify.close()
        self._inotify = None
        self._folders, self._names = {}, {}


def _identity(root: str) -> tuple[int, int] | None:
    try:
        status = os.stat(root)  # noqa: PTH116
    except OSError:
        return None
    return status.st_dev, status.st_ino


@lru_cache(maxsize=64)
def _is_local(device: int) -> bool:
    """Whether a device holds a file system whose changes all come from this kernel. Source: proc(5), mountinfo."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with Path("/proc/self/mountinfo").open() as mounts:
        kinds = {line.partition(" - ")[2].split()[0] for line in mounts if line.split()[2] == number}
    return bool(kinds) and kinds <= _LOCAL
