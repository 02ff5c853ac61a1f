"""Confined file access below a workspace's root: by descriptors (openat), name by name, never through a link.

Theory of operation. Each folder is opened relative to the descriptor of the one above it, with O_NOFOLLOW. Whatever
somebody puts in the way between a check and a use (TOCTOU), the result is below the root, or an error. The status of a
file is read before it is opened, because opening a device can have an effect, and again from its descriptor, because it
may have been replaced. A hard link cannot be distinguished from the file itself; our own writes replace the name and
leave the other link unchanged.

Paths here are normalized: names separated by slashes, no `.`, no `..`, nothing absolute. The empty path is the root.
Source: architecture 6; rows RU204, RU205.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, Self

from msgspec import Struct

from turnwright_executor.files.file_threads import Check
from turnwright_executor.tools.ports import OutsideProjectError, TooMuchError
from turnwright_kit.sandbox.readable import MARKER_FOLDER

CLOSED: Final = frozenset({".git", ".hg", ".svn", MARKER_FOLDER})
"""Names of version control and of the runtime: tools neither read nor change paths that contain one."""

DEPTH_MAX: Final = 128
"""Maximum depth of nested folders; each level costs a descriptor."""

NAMES_MAX: Final = 1_000_000
"""Maximum number of names that are read from one folder."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class DirectoryListing(Struct, frozen=True):
    """The names in a folder: all of them, and those that are folders."""

    others: tuple[str, ...]
    folders: tuple[str, ...]


class Tree:
    """The files below a root. A context manager; not thread-safe.

    Descriptors of the last used path stay open, so that sorted access is cheap.
    """

    def __init__(self, root: str, check: Check = lambda: None) -> None:
        """The root is a real path; `check` is called before each step. Raises OSError if there is no such folder."""
        self.check = check
        self.root = root
        self._names: list[str] = []
        self._descriptors = [os.open(root, _FOLDER)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._names.clear()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def folder(self, path: str, *, make: bool = False) -> int:
        """A folder's descriptor, valid until the next call; with `make` missing folders are created.

        Raises OutsideProjectError for a link on the way and for a path that could leave the root, OSError.
        """
        self.check()
        names = names_of(path)
        if len(names) > DEPTH_MAX:
            raise OSError(errno.ENAMETOOLONG, f"more than {DEPTH_MAX} folders within each other", path)
        self._back_to(names)
        for name in names[len(self._names) :]:
            self._descriptors.append(_entered(self._descriptors[-1], name, path, make=make))
            self._names.append(name)
        return self._descriptors[-1]

    def folder_and_name(self, path: str, *, make: bool = False) -> tuple[int, str]:
        """The descriptor of a path's folder, valid until the next call, and the name in it. Raises as `folder`."""
        above, _, name = path.rpartition("/")
        if not _is_name(name):
            raise OutsideProjectError(f"{path} is not the path of something in the project.")
        return self.folder(above, make=make), name

    def status(self, path: str) -> os.stat_result:
        """The status of a path, without following a link. Raises as `folder`."""
        if not path:
            return os.fstat(self.folder(""))
        folder, name = self.folder_and_name(path)
        return os.stat(name, dir_fd=folder, follow_symlinks=False)

    @contextmanager
    def open_file(self, path: str) -> Iterator[tuple[int, os.stat_result] | None]:
        """A file's descriptor and status; None for anything else, such as a pipe or a link.

        Raises IsADirectoryError for a folder, and as `folder`.
        """
        folder, name = self.folder_and_name(path)
        if not _is_file(os.stat(name, dir_fd=folder, follow_symlinks=False), name):
            yield None
            return
        descriptor = os.open(name, _FILE, dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            yield (descriptor, status) if _is_file(status, name) else None
        finally:
            os.close(descriptor)

    def list_names(self, path: str, most: int = NAMES_MAX) -> DirectoryListing:
        """The names in a folder, sorted. Raises TooMuchError if there are too many, and as `folder`."""
        kinds: dict[str, bool] = {}
        with os.scandir(self.folder(path)) as found:
            for entry in found:
                self.check()
                if len(kinds) == most:
                    raise TooMuchError(f"{path or 'the project'} has more than {most} files and folders")
                kinds[entry.name] = entry.is_dir(follow_symlinks=False)
        return DirectoryListing(
            tuple(sorted(name for name, is_folder in kinds.items() if not is_folder)),
            tuple(sorted(name for name, is_folder in kinds.items() if is_folder)),
        )

    def _back_to(self, names: Sequence[str]) -> None:
        """Close descriptors that are not on the path."""
        while self._names != list(names[: len(self._names)]):
            self._names.pop()
            os.close(self._descriptors.pop())


def names_of(path: str) -> list[str]:
    """The names of a path. Raises OutsideProjectError if it is not normalized."""
    names = path.split("/") if path else []
    if not all(map(_is_name, names)):
        raise OutsideProjectError(f"{path} is not the path of something in the project.")
    return names


def is_closed(path: str, home: str = "") -> bool:
    """Whether a path belongs to version control or to the runtime, whose home may be below the root.

    Letter case and invisible characters are ignored, because some file systems ignore them.
    """
    if home and f"{path}/".casefold().startswith(f"{home}/".casefold()):
        return True
    visible = path if path.isprintable() else "".join(filter(str.isprintable, path))
    return not CLOSED.isdisjoint(visible.casefold().split("/"))


def path_below(root: str, place: str | os.PathLike[str] | None) -> str:
    """The path of a place relative to a root, without following links; empty if it is not below it."""
    path, prefix = os.fspath(place or ""), f"{root.rstrip('/')}/"
    return path.removeprefix(prefix) if path.startswith(prefix) else ""


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _is_file(status: os.stat_result, name: str) -> bool:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    return stat.S_ISREG(status.st_mode)


def _entered(above: int, name: str, path: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
            os.fsync(above)
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except OSError as error:
        # Which of the two errors occurs depends on the system.
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(above, name):
            raise OutsideProjectError(f"{path} leads through a link ({name}), which is not followed here.") from None
        raise


def _is_link(above: int, name: str) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    return False
