"""Reading and writing file contents through descriptors: bounded reads, atomic writes."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

from turnwright_core.limits import BODY_BYTES_MAX
from turnwright_executor.domain.encodings import foreign_encoding, marked_text, utf8_text
from turnwright_executor.files.confinement import Tree
from turnwright_executor.files.file_threads import Check
from turnwright_executor.tools.ports import FileText

HASHED_BYTES_MAX: Final = BODY_BYTES_MAX
"""Longest file that is read for its hash, in bytes: longer than anything a tool writes."""

_CHUNK_BYTES: Final = 1024 * 1024
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMELESS: Final = os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC
_NO_NAMELESS: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)
"""Errors of file systems without unnamed files (O_TMPFILE)."""

_TEMPORARY: Final = re.compile(r"\.[0-9a-f]{32}\.tmp")


def read(tree: Tree, path: str, text_bytes_max: int) -> FileText | None:
    """A file; None for what is neither file nor folder. A file over the limits is not read, only its size.

    Raises IsADirectoryError, OutsideProjectError, OSError.
    """
    with tree.open_file(path) as found:
        if found is None:
            return None
        descriptor, status = found
        most = max(text_bytes_max, HASHED_BYTES_MAX)
        data = _at_most(descriptor, most, tree.check) if status.st_size <= most else None
        if data is None:
            status = os.fstat(descriptor)
            return FileText(None, unread_hash(status), status.st_size)
    return _file_text(data, text_bytes_max)


def read_short(tree: Tree, path: str, bytes_max: int, text_bytes_max: int) -> FileText | None:
    """As `read`; None for a file of more than so many bytes too."""
    with tree.open_file(path) as found:
        data = os.read(found[0], bytes_max + 1) if found and found[1].st_size <= bytes_max else None
    return None if data is None or len(data) > bytes_max else _file_text(data, text_bytes_max)


def _file_text(data: bytes, text_bytes_max: int) -> FileText:
    """A file as read; without its text if that is too long, or in no encoding that is read here."""
    marked = marked_text(data)
    content = marked.text.encode() if marked else data
    text, foreign = None, ""
    if len(content) <= text_bytes_max:
        text = marked.text if marked else utf8_text(data)
        foreign = foreign_encoding(data) if text is None else ""
    digest = hashlib.sha256(content).hexdigest()
    return FileText(text, digest, len(data), marked.encoding if marked else "", foreign)


def unread_hash(status: os.stat_result) -> str:
    """A substitute for the hash of a file that is too long to read; it changes when the file is written."""
    return f"size:{status.st_size}:{status.st_mtime_ns}"


class NewFile:
    """A file that is written whole before it has a name, in a folder whose descriptor stays open.

    A crash leaves nothing behind until it is named, if the file system supports unnamed files.
    """

    def __init__(self, folder: int, data: bytes, like: os.stat_result | None) -> None:
        self._folder = folder
        self._temporary = f".{uuid4().hex}.tmp"
        self._descriptor, self._is_named = _opened_new(self._temporary, folder)
        try:
            _fill(self._descriptor, data, like)
        except BaseException:
            self.close()
            raise

    def temporary_name(self) -> str:
        """Choose its temporary name."""
        if not self._is_named:
            self._link(self._temporary)
            self._is_named = True
        return self._temporary

    def put_new(self, name: str) -> bool:
        """Give it its final name (link), unless that name is taken."""
        try:
            self._link(name)
        except FileExistsError:
            return False
        except OSError as error:
            if not self._is_named or error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            # A file system without hard links.
            self.put_over(name)
        return True

    def put_over(self, name: str) -> None:
        """Give it its final name, replacing the file that has it (rename)."""
        os.rename(self.temporary_name(), name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def _link(self, name: str) -> None:
        if self._is_named:
            os.link(self._temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder, follow_symlinks=False)
        else:
            os.link(f"/proc/self/fd/{self._descriptor}", name, dst_dir_fd=self._folder, follow_symlinks=True)

    def close(self) -> None:
        """Delete it unless it was given its final name."""
        os.close(self._descriptor)
        if self._is_named:
            with suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._folder)


@contextmanager
def written_aside(folder: int, data: bytes, like: os.stat_result | None = None) -> Iterator[NewFile]:
    """Write a new file; it is deleted unless it gets a name.

    It has the permissions, and if possible the owner, of another file.
    """
    new = NewFile(folder, data, like)
    try:
        yield new
    finally:
        new.close()


def is_temporary(name: str) -> bool:
    return _TEMPORARY.fullmatch(name) is not None


def _at_most(descriptor: int, most: int, check: Check) -> bytes | None:
    """The content of a file; None if it is longer than the limit, which may have changed since it was checked."""
    data = bytearray()
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        check()
        data += chunk
        if len(data) > most:
            return None
    return bytes(data)


def _fill(descriptor: int, data: bytes, like: os.stat_result | None) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    if like is not None:
        with suppress(PermissionError):
            os.fchown(descriptor, like.st_uid, like.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
    os.fsync(descriptor)


def _opened_new(name: str, folder: int) -> tuple[int, bool]:
    """A new file, and whether it already has its name."""
    try:
        return os.open(".", _NAMELESS, 0o666, dir_fd=folder), False
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
        return os.open(name, _CREATE, 0o666, dir_fd=folder), True
