"""Which file systems are those of this machine. Source: proc(5), mountinfo and its poll events."""

from __future__ import annotations

import os
import re
import select
import weakref
from collections.abc import Iterator
from threading import Lock
from typing import Final, TextIO

_LOCAL: Final = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems whose changes all come from this kernel, and that answer as fast as its disks."""

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
"""Spaces and the like, in the place of a mount."""

_FOLDERS_MAX: Final = 1_000
"""Folders for which answers are kept."""

Mount = tuple[str, str, str]
"""Number of the device, place and kind of what is mounted."""


class Mounts:
    """What is mounted now: read again only when the kernel says that it has changed. Without a table nothing is local.

    Answers by device number or folder hold for that long too: a device number is used again after an unmount.
    """

    def __init__(self, table: str = "/proc/self/mountinfo") -> None:
        """Nothing is opened before the first question."""
        self._table = table
        self._file = -1
        self._poll = select.poll()
        self._lock = Lock()
        self._is_read = False
        self._all: tuple[Mount, ...] = ()
        self._below: dict[str, tuple[Mount, ...]] = {}
        self._local: dict[int, bool] = {}

    def is_local(self, device: int) -> bool:
        """Whether a device holds a file system of this machine."""
        with self._lock:
            self._refresh()
            return self._is_local(device)

    def _is_local(self, device: int) -> bool:
        if device not in self._local:
            number = f"{os.major(device)}:{os.minor(device)}"
            kinds = {kind for one, _, kind in self._all if one == number}
            self._local[device] = bool(kinds) and kinds <= _LOCAL
        return self._local[device]

    def mounts_below(self, root: str) -> tuple[Mount, ...]:
        """What is mounted below a folder."""
        with self._lock:
            self._refresh()
            return self._mounts_below(root)

    def _mounts_below(self, root: str) -> tuple[Mount, ...]:
        if root not in self._below:
            if len(self._below) >= _FOLDERS_MAX:
                self._below.clear()
            self._below[root] = tuple(mount for mount in self._all if mount[1].startswith(f"{root}/"))
        return self._below[root]

    def is_local_tree(self, root: str) -> bool:
        """Whether all that lies below a folder is on this machine."""
        try:
            device = os.stat(root).st_dev
        except OSError:
            return False
        with self._lock:
            self._refresh()
            return self._is_local(device) and _LOCAL.issuperset([kind for _, _, kind in self._mounts_below(root)])

    def _refresh(self) -> None:
        try:
            if self._file < 0:
                self._file = os.open(self._table, os.O_RDONLY | os.O_CLOEXEC)
                weakref.finalize(self, os.close, self._file)
                self._poll.register(self._file, select.POLLPRI)
            # Polled before it is read: a change in between is reported again.
            elif self._is_read and not self._poll.poll(0):
                return
            with open(self._file, errors="surrogateescape", closefd=False) as table:
                table.seek(0)
                self._all = tuple(_mounts(table))
            self._is_read = True
        except OSError:
            # Without descriptors, perhaps: no change is reported for what could not be read.
            self._all, self._is_read = (), False
        self._below.clear()
        self._local.clear()


def _mounts(table: TextIO) -> Iterator[Mount]:
    for line in table:
        fields = line.split()
        place = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
        yield fields[2], place, line.partition(" - ")[2].split()[0]


MOUNTS: Final = Mounts()
"""Those of this process."""
