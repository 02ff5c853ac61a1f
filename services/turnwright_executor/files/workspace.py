"""The files of one project on this host, confined to its root.

Theory of operation. A path is first resolved, following links, and must be inside the root: a link within the project
to a place within it may be used, under the name of its target. A name that is not there stands for the one that differs
from it in nothing but how its letters are composed (macOS decomposes what everybody else composes). The resolved path
is then opened through `confinement`, never through a link: if somebody puts one in the way after the check, that fails.
Between the comparison of a file's hash and its replacement, a writer outside this process can interfere; it loses its
change only if it wrote in that moment, and a new file never replaces another one.
Source: architecture 6, 11; rows RU204, RU205.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from turnwright_values.types import FileEdit

from turnwright_core.constraints import Constraints
from turnwright_executor.domain.encodings import encoded
from turnwright_executor.files.confinement import DEPTH_MAX, Tree, is_closed, path_below
from turnwright_executor.files.contents import NewFile, read, read_short, written_aside
from turnwright_executor.files.file_threads import Check, on_files
from turnwright_executor.files.mounts import MOUNTS
from turnwright_executor.files.scan import respelled
from turnwright_executor.tools.ports import FileText, GatheredFiles, OutsideProjectError, TooMuchError

# Reading all files below a folder through descriptors, within limits, without following links.
#
# Source: row RU239; architecture 6 (paths are confined).

GATHERED_DEPTH_MAX: Final = 16
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
        if depth >= GATHERED_DEPTH_MAX:
            raise TooMuchError(f"it has more than {GATHERED_DEPTH_MAX} folders within each other")
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


SHORT_BYTES_MAX: Final = 64 * 1024
"""Longest file that is read in the event loop, in bytes: a thread costs more than reading it."""


class DiskWorkspace:
    """Implements tools.ports.Workspace. Files over `file_bytes_max` bytes are hashed but not read as text."""

    def __init__(
        self,
        root: str | Path,
        file_bytes_max: int,
        constraints: Constraints | None = None,
        home: str | Path | None = None,
        is_local: Callable[[str], bool] = MOUNTS.is_local_tree,
    ) -> None:
        """`root` and `home` are real paths: they lead through no link. `constraints` are those of the project's files.

        Files below `home`, the runtime's own directory, are never files of a project. `is_local`: the whole project is
        on local file systems, so short files may be read in the event loop.
        """
        self.root = str(root)
        self._home = path_below(self.root, home)
        self._constraints = constraints or Constraints()
        self._file_bytes_max = file_bytes_max
        self._is_local = is_local

    async def normalise(self, path: str, *, writing: bool = False) -> str:
        """The normalized path, relative to the root. Raises OutsideProjectError, OSError."""
        return await on_files(lambda _: self._normalise(path, writing=writing))

    async def read(self, path: str) -> FileText | None:
        """The file; None if there is none. Raises OutsideProjectError, OSError."""
        return (await self.find(path))[1]

    async def find(self, path: str) -> tuple[str, FileText | None]:
        """The normalized path and the file there. Raises OutsideProjectError, OSError."""
        try:
            short = self._read_short(path) if self._is_local(self.root) else None
        except FileNotFoundError:
            if path.isascii():
                return path, None
            short = None
        return (path, short) if short else await on_files(lambda check: self._find(path, check))

    async def gather(self, path: str, files_max: int, bytes_max: int) -> GatheredFiles | None:
        """The file at a path, or all files below a folder; None if neither exists.

        Hidden and ignored files are left out. Raises OutsideProjectError, TooMuchError, OSError.
        """
        return await on_files(lambda check: self._gather(path, files_max, bytes_max, check))

    async def replace(
        self, path: str, content: str | None, base_hash: str | None, like: str = "", encoding: str = ""
    ) -> bool:
        edit = FileEdit(path, base_hash, content, "", like=like, encoding=encoding)
        return await on_files(lambda check: self._replace(edit, check))

    def _read_short(self, path: str) -> FileText | None:
        """A short local file, read in the event loop; None if it must be read in a thread, or is refused.

        Never through a link: its target may be on a file system that hangs. Raises FileNotFoundError if there is none.
        """
        try:
            with suppress(ValueError, OutsideProjectError), Tree(self.root) as tree:
                self._check(path, path)
                return read_short(tree, path, SHORT_BYTES_MAX, self._file_bytes_max)
        except FileNotFoundError:
            raise
        except OSError:
            pass
        return None

    def _normalise(self, path: str, *, writing: bool = False) -> str:
        if not path or "\0" in path:
            raise OutsideProjectError("A path needs at least one character, and no NUL.")
        try:
            relative = self._resolved(path)
            for _ in range(0 if path.isascii() else DEPTH_MAX):
                if (respelling := respelled(self.root, relative)) is None:
                    break
                relative = self._resolved(respelling)
        except (OSError, ValueError) as error:
            raise OutsideProjectError(f"{path} cannot be resolved: {error}.") from None
        if relative == "." or relative.split("/", 1)[0] == "..":
            what = "is the project itself" if relative == "." else "is outside of the project"
            raise OutsideProjectError(f"{path} {what}; name a file inside of it, such as src/app.py.")
        self._check(path, relative, writing=writing)
        return relative

    def _resolved(self, path: str) -> str:
        """The path relative to the root, links resolved. Raises OSError, ValueError."""
        return os.path.relpath(os.path.realpath(os.path.join(self.root, path)), self.root)

    def _check(self, path: str, relative: str, *, writing: bool = False) -> None:
        """Raises OutsideProjectError for a path that tools may not use. `relative` is where it leads."""
        if is_closed(relative, self._home):
            advice = "only <sh> and <env> can use it"
            raise OutsideProjectError(f"{path} belongs to version control or to the runtime; {advice}.")
        if self._constraints.is_ignored(relative):
            raise OutsideProjectError(f"{path} is ignored by the project; only <sh> and <env> can use it.")
        if writing and self._constraints.is_readonly(relative):
            raise OutsideProjectError(f"{path} is read-only in this project and cannot be changed.")

    def _find(self, path: str, check: Check) -> tuple[str, FileText | None]:
        relative = self._normalise(path)
        try:
            with Tree(self.root, check) as tree:
                return relative, read(tree, relative, self._file_bytes_max)
        except (FileNotFoundError, NotADirectoryError):
            return relative, None

    def _gather(self, path: str, files_max: int, bytes_max: int, check: Check) -> GatheredFiles | None:
        relative = self._normalise(path)
        try:
            with Tree(self.root, check) as tree:
                return FileCollector(tree, files_max, bytes_max, self._is_left_out).walk(relative)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _is_left_out(self, relative: str) -> bool:
        return is_closed(relative, self._home) or self._constraints.is_ignored(relative)

    def _replace(self, edit: FileEdit, check: Check) -> bool:
        path, content, base_hash = edit.path, edit.content, edit.base_hash
        relative = self._normalise(path, writing=True)
        if relative != path:
            # Somebody has said yes to a change of that file and of no other one.
            raise OutsideProjectError(f"{path} now leads to {relative}, which is another file.")
        with Tree(self.root, check) as tree:
            current = self._hash_of(tree, relative)
            if content is None:
                return current is None or (current == base_hash and _delete(tree, relative))
            if current == hashlib.sha256(content.encode()).hexdigest():
                return True
            data = encoded(content, edit.encoding)
            return current == base_hash and self._write(tree, relative, data, base_hash, edit.like)

    def _hash_of(self, tree: Tree, relative: str) -> str | None:
        try:
            found = read(tree, relative, 0)
            return found.hash if found else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _status(self, tree: Tree, path: str) -> os.stat_result | None:
        """The status of a file; None if there is none."""
        try:
            return tree.status(self._normalise(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _write(self, tree: Tree, relative: str, data: bytes, base_hash: str | None, like: str = "") -> bool:
        model = relative if base_hash else like
        status = self._status(tree, model) if model else None
        folder, name = tree.folder_and_name(relative, make=base_hash is None)
        with written_aside(folder, data, status) as new:
            placed = self._put_over(tree, new, relative, base_hash) if base_hash else new.put_new(name)
            os.fsync(folder)
        return placed

    def _put_over(self, tree: Tree, new: NewFile, relative: str, base_hash: str) -> bool:
        """Replace a file unless somebody has changed it meanwhile."""
        if self._hash_of(tree, relative) != base_hash:
            return False
        new.put_over(relative.rpartition("/")[2])
        return True


def _delete(tree: Tree, relative: str) -> bool:
    folder, name = tree.folder_and_name(relative)
    os.unlink(name, dir_fd=folder)
    os.fsync(folder)
    return True
