"""All files below a folder, read through descriptors: never through a link, and never more than was asked for.

Source: row RU239; architecture 6 (paths are confined).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final

from turnwright_core.values import mutable
from turnwright_executor.tools.ports import Gathered, TooMuchError

DEPTH_MAX: Final = 16
"""Folders within folders that are looked into."""
LOOKED_AT_FACTOR: Final = 10
"""Names that are looked at for each file that may be read."""
_CHUNK_BYTES: Final = 256 * 1024
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@mutable
class Gathering:
    """What was gathered so far. Mutable: one walk fills it. `is_hidden` takes paths below the place of the walk."""

    files_max: int
    bytes_max: int
    is_hidden: Callable[[str], bool]
    files: dict[str, bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    bytes_: int = 0
    looked_at: int = 0

    def walk(self, name: str, folder: int) -> Gathered | None:
        """The file or folder of a name in a folder's descriptor; None for what is neither.

        Raises TooMuchError, OSError.
        """
        descriptor = os.open(name, _OPEN, dir_fd=folder)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                self._enter(descriptor, "")
            elif stat.S_ISREG(mode):
                self._take(descriptor, name)
            else:
                return None
        finally:
            os.close(descriptor)
        return Gathered(stat.S_ISDIR(mode), dict(sorted(self.files.items())), tuple(sorted(self.left_out)))

    def _enter(self, descriptor: int, below: str) -> None:
        if below.count("/") >= DEPTH_MAX:
            raise TooMuchError(f"it has more than {DEPTH_MAX} folders within each other")
        with os.scandir(descriptor) as found:
            # Its own order is the disk's; the walk's is that of names.
            entries = sorted(self._counted(found), key=lambda entry: entry.name)
        for entry in entries:
            path = f"{below}{entry.name}"
            if entry.name.startswith(".") or self.is_hidden(path):
                continue
            if entry.is_symlink():
                self.left_out.append(f"{path} (a link)")
            elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                self._open(descriptor, entry.name, path)

    def _counted(self, found: Iterable[os.DirEntry[str]]) -> list[os.DirEntry[str]]:
        entries = []
        for entry in found:
            self.looked_at += 1
            if self.looked_at > LOOKED_AT_FACTOR * self.files_max:
                raise TooMuchError(f"it has more than {LOOKED_AT_FACTOR * self.files_max} files and folders")
            entries.append(entry)
        return entries

    def _open(self, folder: int, name: str, path: str) -> None:
        descriptor = os.open(name, _OPEN, dir_fd=folder)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                self._enter(descriptor, f"{path}/")
            elif stat.S_ISREG(mode):
                self._take(descriptor, path)
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int, path: str) -> None:
        if len(self.files) == self.files_max:
            raise TooMuchError(f"it has more than {self.files_max} files")
        kept = bytearray()
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            kept += chunk
            self.bytes_ += len(chunk)
            if self.bytes_ > self.bytes_max:
                raise TooMuchError(f"it has more than {self.bytes_max} bytes")
        self.files[path] = bytes(kept)
