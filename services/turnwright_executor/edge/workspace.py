"""The files of one project on this machine, confined to its root.

Theory of operation. A path is first resolved, links followed, and must lie inside the root. The resolved path is then
walked from a descriptor of the root, one component at a time, never through a link: if somebody puts a link in the
way after the check, the walk fails instead of leaving the root. All reads and writes use the descriptor that the walk
ended at. Where a file's hash is compared and the file then replaced, a writer outside of this process can still come
in between; it loses its change only if it wrote within that moment, and a new file never replaces another.
Source: architecture 6, 11; rows RU204, RU205.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from turnwright_core.constraints import Constraints
from turnwright_executor.edge.gathering import Gathering
from turnwright_executor.edge.leftovers import temporary_name
from turnwright_executor.tools.ports import FileText, Gathered, OutsideProjectError

MARKER_FOLDER: Final = ".turnwright"
"""Folder at a project's root that is ours."""

UNTOUCHED: Final = frozenset({".git", ".hg", ".svn", MARKER_FOLDER})
"""Names that no tool may change, in any letter case: some file systems do not tell `.GIT` from `.git`."""

_CHUNK_BYTES: Final = 1024 * 1024
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DiskWorkspace:
    """Implements tools.ports.Workspace. Files over `file_bytes_max` bytes are hashed but not read as text."""

    def __init__(self, root: str | Path, file_bytes_max: int, constraints: Constraints | None = None) -> None:
        """The root may be named through links. `constraints` are what the project says of its files."""
        self.root = os.path.realpath(root)
        self._constraints = constraints or Constraints()
        self._file_bytes_max = file_bytes_max

    def normalise(self, path: str, *, writing: bool = False) -> str:
        """The path relative to the root in its one spelling. Raises OutsideProjectError."""
        if not path or "\0" in path:
            raise OutsideProjectError("A path needs at least one character, and no NUL.")
        try:
            resolved = os.path.realpath(os.path.join(self.root, path))  # noqa: PTH118
        except (OSError, ValueError) as error:
            raise OutsideProjectError(f"{path} cannot be resolved: {error}.") from None
        relative = os.path.relpath(resolved, self.root)
        if relative == "." or relative.split("/", 1)[0] == "..":
            what = "is the project itself" if relative == "." else "is outside of the project"
            raise OutsideProjectError(f"{path} {what}; name a file inside of it, such as src/app.py.")
        if writing and UNTOUCHED & {part.casefold() for part in relative.split("/")}:
            raise OutsideProjectError(f"{path} belongs to version control or to the runtime and is not to be changed.")
        if self._constraints.is_ignored(relative):
            raise OutsideProjectError(f"{path} is ignored by the project; only <sh> and <env> can use it.")
        if writing and self._constraints.is_readonly(relative):
            raise OutsideProjectError(f"{path} is read-only in this project and is not to be changed.")
        return relative

    async def read(self, path: str) -> FileText | None:
        """The file, None where there is none. Raises OutsideProjectError, OSError."""
        return await asyncio.to_thread(self._read, path)

    async def gather(self, path: str, files_max: int, bytes_max: int) -> Gathered | None:
        """The file at a path, or all files below a folder; None where neither is.

        What is hidden or ignored is left out. Raises OutsideProjectError, TooMuchError, OSError.
        """
        return await asyncio.to_thread(self._gather, path, files_max, bytes_max)

    async def replace(self, path: str, content: str | None, base_hash: str | None, like: str = "") -> bool:
        """Write or (None) delete atomically if the file still has the base hash; False when it has not.

        A file that already is what it shall become counts as done. A file keeps its mode; a new one gets that of the
        file `like`, if there is one. Raises OutsideProjectError, OSError.
        """
        return await asyncio.to_thread(self._replace, path, content, base_hash, like)

    def _read(self, path: str) -> FileText | None:
        relative = self.normalise(path)
        try:
            with self._folder_of(relative) as (folder, name):
                return read_file(name, folder, self._file_bytes_max)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _gather(self, path: str, files_max: int, bytes_max: int) -> Gathered | None:
        relative = self.normalise(path)
        gathering = Gathering(files_max, bytes_max, lambda below: self._constraints.is_ignored(f"{relative}/{below}"))
        try:
            with self._folder_of(relative) as (folder, name):
                return gathering.walk(name, folder)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _replace(self, path: str, content: str | None, base_hash: str | None, like: str) -> bool:
        relative = self.normalise(path, writing=True)
        current = self._hash_of(relative)
        if content is None:
            return current is None or (current == base_hash and self._delete(relative))
        data = content.encode()
        if current == hashlib.sha256(data).hexdigest():
            return True
        return current == base_hash and self._write(relative, data, base_hash, like)

    def _hash_of(self, relative: str) -> str | None:
        try:
            with self._folder_of(relative) as (folder, name):
                found = read_file(name, folder, 0)
                return found.hash if found else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _delete(self, relative: str) -> bool:
        with self._folder_of(relative) as (folder, name):
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)
        return True

    def _stat(self, path: str) -> os.stat_result | None:
        """What is known of a file; None where there is none."""
        try:
            with self._folder_of(self.normalise(path)) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _write(self, relative: str, data: bytes, base_hash: str | None, like: str = "") -> bool:
        with self._folder_of(relative, make=base_hash is None) as (folder, name):
            temporary = temporary_name()
            try:
                if base_hash is None:
                    _write_new(temporary, folder, data, self._stat(like) if like else None)
                    placed = _put_new(temporary, name, folder)
                else:
                    _write_new(temporary, folder, data, os.stat(name, dir_fd=folder, follow_symlinks=False))
                    placed = _put_over(temporary, name, folder, base_hash)
                os.fsync(folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
        return placed

    @contextmanager
    def _folder_of(self, relative: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the folder of a resolved path, and the name in it; with `make` folders are made."""
        *folders, name = relative.split("/")
        current = os.open(self.root, _DIRECTORY)
        try:
            for folder in folders:
                inner = _entered(current, folder, make=make)
                os.close(current)
                current = inner
            yield current, name
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OutsideProjectError(f"{relative} was replaced by a link while it was used.") from None
            raise
        finally:
            os.close(current)


def read_file(path: str, folder: int | None, text_bytes_max: int) -> FileText | None:
    """A regular file below a folder's descriptor (or the current directory), never through a link at its end.

    None for what is neither file nor folder, such as a pipe. Raises IsADirectoryError for a folder, OSError.
    """
    descriptor = os.open(path, _READ, dir_fd=folder)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return _content(descriptor, text_bytes_max) if stat.S_ISREG(mode) else None
    finally:
        os.close(descriptor)


def _content(descriptor: int, text_bytes_max: int) -> FileText:
    digest, size, kept = hashlib.sha256(), 0, bytearray()
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
        if size <= text_bytes_max:
            kept += chunk
    text = as_text(bytes(kept)) if size <= text_bytes_max else None
    return FileText(text, digest.hexdigest(), size)


def as_text(data: bytes) -> str | None:
    """The text of a file, None for one that is not UTF-8 or holds a NUL, as binary files do."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _entered(current: int, folder: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(folder, dir_fd=current)
            os.fsync(current)
    return os.open(folder, _DIRECTORY, dir_fd=current)


def _write_new(name: str, folder: int, data: bytes, like: os.stat_result | None) -> None:
    """A new file, on the disk before anything names it; with the mode, and where possible the owner, of another."""
    descriptor = os.open(name, _CREATE, 0o666, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if like is not None:
            with suppress(PermissionError):
                os.fchown(descriptor, like.st_uid, like.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_over(temporary: str, name: str, folder: int, base_hash: str) -> bool:
    """Give a file another content unless somebody has changed it meanwhile."""
    found = read_file(name, folder, 0)
    if found is None or found.hash != base_hash:
        return False
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _put_new(temporary: str, name: str, folder: int) -> bool:
    """Give a new file its name unless somebody else has taken it."""
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        # A file system without hard links.
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True
