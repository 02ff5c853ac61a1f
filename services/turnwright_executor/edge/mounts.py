"""Which file systems are those of this machine. Source: proc(5), mountinfo."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

_LOCAL: Final = frozenset({"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
"""File systems whose changes all come from this kernel, and that answer as fast as its disks."""

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
"""Spaces and the like, in the place of a mount."""


Mount = tuple[str, str, str]
"""Number of the device, place and kind of what is mounted."""


def mounted() -> Iterator[Mount]:
    """What this process sees mounted now."""
    with Path("/proc/self/mountinfo").open(errors="surrogateescape") as mounts:
        for line in mounts:
            fields = line.split()
            place = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
            yield fields[2], place, line.partition(" - ")[2].split()[0]


@lru_cache(maxsize=64)
def is_local(device: int) -> bool:
    """Whether a device holds a file system of this machine."""
    return _is_local(device, list(mounted()))


def is_local_tree(root: str, mounts: Callable[[], Iterable[Mount]] = mounted) -> bool:
    """Whether all that lies below a folder is on this machine, by what is mounted there now."""
    try:
        device = os.stat(root).st_dev  # noqa: PTH116
    except OSError:
        return False
    found = list(mounts())
    return _is_local(device, found) and all(kind in _LOCAL for _, place, kind in found if place.startswith(f"{root}/"))


def _is_local(device: int, mounts: Iterable[Mount]) -> bool:
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = {kind for one, _, kind in mounts if one == number}
    return bool(kinds) and kinds <= _LOCAL
