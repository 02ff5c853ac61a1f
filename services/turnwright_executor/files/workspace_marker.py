"""The identity of a workspace: a marker at the project's root, which survives a move of the directory.

Theory of operation. The marker holds an id, and which directory it was last found in: its path, its inode and its
device. A directory found under its own path is that workspace. Under another path it may have been moved, be seen from
another host or container, or be a copy, which is a workspace of its own:

| evidence | it is |
|---|---|
| the noted path is a directory with the same id here, and not this one seen twice | a copy |
| the same inode | moved, or seen from elsewhere |
| another inode on the same device | a copy, whose original has gone or moved |
| neither inode nor device | moved to another disk, restored, or seen from another host: nothing tells, so it stays |

A copy gets a marker with a new id. Markers are replaced and never written in place, because the copy of one may be a
hard link to it. Source: architecture 3.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid4, uuid5

from msgspec import Struct

from turnwright_executor.files.confinement import Tree
from turnwright_executor.files.contents import written_aside
from turnwright_executor.ports.workspaces import FoundWorkspace
from turnwright_executor.tools.ports import OutsideProjectError
from turnwright_kit.sandbox.readable import MARKER_FOLDER

LOCK_TRIES: Final = 100
"""Looks at a marker's lock; who holds it has a few files to write."""

LOCK_POLL_S: Final = 0.02
"""Seconds between two of them."""

_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_MARKER: Final = f"{MARKER_FOLDER}/workspace"
_MARKER_BYTES_MAX: Final = 64 * 1024
_UNUSABLE: Final = (OSError, OutsideProjectError)


class _Marker(Struct, frozen=True):
    """What a marker says: the id, and the directory that had it when it was written."""

    id: str
    root: str
    device: int
    inode: int

    def names(self, here: _Marker) -> bool:
        """Whether this marker belongs to that directory. Another host may have another device number."""
        return (self.root, self.inode) == (here.root, here.inode)

    def to_bytes(self) -> bytes:
        noted = {"root": self.root, "device": self.device, "inode": self.inode}
        return f"{self.id}\n{json.dumps(noted)}\n".encode()


def find_workspace(root: str | Path, new_id: Callable[[], str] = lambda: str(uuid4())) -> FoundWorkspace:
    """The workspace of a directory, by the marker file below it; the marker is created if there is none.

    If no marker can be written, the id is that of the real path: stable as long as the directory stays where it is.
    """
    real = os.path.realpath(root)
    copied_from = ""
    with suppress(*_UNUSABLE), Tree(real) as tree:
        found = _read(tree) or _made(tree, _here(tree, new_id()))
        if found.names(_here(tree, found.id)):
            return FoundWorkspace(real, found.id)
        with _locked(tree):
            # Somebody else may have replaced it until now.
            found = _read(tree) or found
            copied_from = found.root if _is_copy(tree, found) else ""
            ours = _here(tree, new_id() if copied_from else found.id)
            # Where it is only out of date it may as well stay.
            with suppress(*(() if copied_from else _UNUSABLE)):
                _replace(tree, ours)
        return FoundWorkspace(real, ours.id, copied_from)
    return FoundWorkspace(real, _id_of_path(real), copied_from)


def known_workspace(root: str | Path) -> str:
    """The id that `find_workspace` would give a directory, found without leaving anything behind.

    Of a directory without a marker that is the id of its path, which only one has that cannot be written to.
    """
    real = os.path.realpath(root)
    with suppress(*_UNUSABLE), Tree(real) as tree:
        found = _read(tree)
        if found and (found.names(_here(tree, found.id)) or not _is_copy(tree, found)):
            return found.id
    return _id_of_path(real)


def _id_of_path(real: str) -> str:
    return str(uuid5(NAMESPACE_URL, Path(real).as_uri()))


def _here(tree: Tree, workspace: str) -> _Marker:
    status = tree.status("")
    return _Marker(workspace, tree.root, status.st_dev, status.st_ino)


def _is_copy(tree: Tree, marker: _Marker) -> bool:
    """Whether the directory is a copy: the marker in it was written for another one."""
    here = _here(tree, marker.id)
    if here.root == marker.root or not marker.root:
        return False
    with suppress(*_UNUSABLE), Tree(os.path.realpath(marker.root)) as there:
        original = _read(there)
        if original and original.id == marker.id:
            return not _is_same(tree, there)
    return here.inode != marker.inode and here.device == marker.device


def _is_same(tree: Tree, there: Tree) -> bool:
    """Whether both are the same directory, possibly mounted twice: a file created in one appears in the other."""
    if os.path.samestat(tree.status(""), there.status("")):
        return True
    try:
        folder, _ = tree.folder_and_name(_MARKER)
        with written_aside(folder, b"") as new:
            there.status(f"{MARKER_FOLDER}/{new.temporary_name()}")
    except FileNotFoundError:
        return False
    except OSError:
        # It cannot be written to.
        return tree.status("").st_ino == there.status("").st_ino
    return True


def _read(tree: Tree) -> _Marker | None:
    """The marker; None if there is none. Raises OSError, OutsideProjectError if the file is not ours."""
    try:
        with tree.open_file(_MARKER) as found:
            data = os.read(found[0], _MARKER_BYTES_MAX) if found else b""
    except FileNotFoundError:
        return None
    workspace, _, noted = data.decode("ascii", errors="replace").partition("\n")
    if not _ID.fullmatch(workspace.strip()):
        raise OSError(f"{tree.root}/{_MARKER} holds no workspace id")
    try:
        content = json.loads(noted)
        return _Marker(workspace.strip(), str(content["root"]), int(content["device"]), int(content["inode"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return _Marker(workspace.strip(), "", 0, 0)


def _made(tree: Tree, marker: _Marker) -> _Marker:
    folder, name = tree.folder_and_name(_MARKER, make=True)
    # Who comes second takes what came first.
    for data, wanted in ((b"*\n", ".gitignore"), (marker.to_bytes(), name)):
        with written_aside(folder, data) as new:
            new.put_new(wanted)
    return _read(tree) or marker


def _replace(tree: Tree, marker: _Marker) -> None:
    folder, name = tree.folder_and_name(_MARKER)
    with written_aside(folder, marker.to_bytes()) as new:
        new.put_over(name)


@contextmanager
def _locked(tree: Tree) -> Iterator[None]:
    """A lock file, so that all who find the copy at the same time agree on its new id. A stale lock is ignored."""
    folder = os.dup(tree.folder(MARKER_FOLDER))
    try:
        for _ in range(LOCK_TRIES):
            tree.check()
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(LOCK_POLL_S)
            except OSError:
                # A file system without locks.
                break
        yield
    finally:
        os.close(folder)
