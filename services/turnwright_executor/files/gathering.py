"""Reading all files below a folder through descriptors, within limits, without following links.

Source: row RU239; architecture 6 (paths are confined).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final

from msgspec import Struct, field

from turnwright_executor.files.confinement import Tree
from turnwright_executor.tools.ports import GatheredFiles, TooMuchError

DEPTH_MAX: Final = 16
"""Maximum depth of nested folders."""
LOOKED_AT_FACTOR: Final = 10
"""Names that may be examined for each file that may be read."""
_CHUNK_BYTES: Final = 256 * 1024


class FileCollector(Struct):
    """The files gathered so far. Mutable: filled by one walk. `is_hidden` takes paths below the root."""

    tree: Tree
    files_max: int
    bytes_max: int
    is_hidden: Callable[[str], bool]
    files: dict[str, bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    bytes_: int = 0
    looked_at: int = 0

    def walk(self, path: str) -> GatheredFiles | None:
        """Gather the file or the folder at a path; None if it is neither. Raises TooMuchError, OSError."""
        is_folder = stat.S_ISDIR(self.tree.status(path).st_mode)
        if is_folder:
            self._enter(path, "", 0)
        elif not self._take(path, path.rpartition("/")[2]):
            return None
        return GatheredFiles(is_folder, dict(sorted(self.files.items())), tuple(sorted(self.left_out)))

    def _enter(self, folder: str, below: str, depth: int) -> None:
        if depth >= DEPTH_MAX:
            raise TooMuchError(f"it has more than {DEPTH_MAX} folders within each other")
        most = LOOKED_AT_FACTOR * self.files_max
        listed = self.tree.list_names(folder, most)
        self.looked_at += len(listed.others) + len(listed.folders)
        if self.looked_at > most:
            raise TooMuchError(f"it has more than {most} files and folders")
        for name in filter(self._is_shown(folder), listed.others):
            if stat.S_ISLNK(self.tree.status(f"{folder}/{name}").st_mode):
                self.left_out.append(f"{below}{name} (a link)")
            else:
                self._take(f"{folder}/{name}", f"{below}{name}")
        for name in filter(self._is_shown(folder), listed.folders):
            self._enter(f"{folder}/{name}", f"{below}{name}/", depth + 1)

    def _is_shown(self, folder: str) -> Callable[[str], bool]:
        return lambda name: not (name.startswith(".") or self.is_hidden(f"{folder}/{name}"))

    def _take(self, path: str, relative: str) -> bool:
        """Read one path; returns whether it was a file."""
        with self.tree.open_file(path) as found:
            if found is None:
                return False
            if len(self.files) == self.files_max:
                raise TooMuchError(f"it has more than {self.files_max} files")
            kept = bytearray()
            while chunk := os.read(found[0], _CHUNK_BYTES):
                self.tree.check()
                kept += chunk
                self.bytes_ += len(chunk)
                if self.bytes_ > self.bytes_max:
                    raise TooMuchError(f"it has more than {self.bytes_max} bytes")
        self.files[relative] = bytes(kept)
        return True
