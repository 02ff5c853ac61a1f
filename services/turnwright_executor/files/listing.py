"""The list of a project's files, from git or else from a walk, cached as long as its inputs are unchanged.

Theory of operation. The answer depends on the names in the folders that were read, on the ignore rules, and on git's
index. The names of each folder are cached with its times: while the times are unchanged, nothing was added, removed or
renamed in it; if they changed, as they do when an edit replaces a file, the names are compared. So a turn costs one
`stat` per folder, and git is only started when a name came or went, or a rule changed.

Names are read before git is asked, so a change in between shows up as a difference next time. Folders that appear for
the first time are read after it; if one is so new that its times may not reveal a second change, the answer is not
cached.

Git's answer is a list of untrusted names, so files are only opened through `confinement`.
"""

from __future__ import annotations

import copy
import os
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from turnwright_core.limits import PATH_CHARS_MAX
from turnwright_executor.files.confinement import DEPTH_MAX, Tree
from turnwright_executor.files.git_work_tree import (
    IGNORE_FILE,
    OUTPUT_BYTES_MAX,
    REPOSITORY,
    GitWorkTree,
    Inputs,
    entries_above,
)
from turnwright_executor.tools.ports import OutsideProjectError, TooMuchError

SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
"""Folders that a walk without version control skips, in addition to hidden ones."""

SECRET_FILES: Final = frozenset({".env", ".netrc", ".npmrc", ".pypirc"})
"""Files that it skips because they usually contain secrets; so it does with `.env.*`."""

RACY_NS: Final = 2_000_000_000
"""Nanoseconds within which two changes may have the same time: the coarsest clock of common file systems."""

SILENCE_NS: Final = 300 * 1_000_000_000
"""Nanoseconds for which git is not asked again after it timed out: something that it reads blocks it."""

FOLDERS_MAX: Final = 50_000
"""Maximum number of cached folders; the listing of a larger project is not cached."""

Signature = tuple[int, ...]
_YOUNG: Final[Signature] = (-1,)
"""Signature of something that changed so recently that its times prove nothing."""
_ABSENT: Final[Signature] = ()


class Folder(Struct, frozen=True):
    """The content of a folder when it was read."""

    signature: Signature
    names: frozenset[str]
    folders: frozenset[str]
    """The names that are folders, without links."""

    def is_as(self, other: Folder) -> bool:
        """Whether both have the same names and the same folders."""
        return self is other or (self.names, self.folders) == (other.names, other.folders)


class ListingSnapshot(Struct):
    """A snapshot of what an answer depends on: folders below the root, and files by absolute path."""

    tree: Tree
    now_ns: int
    folders: dict[str, Folder] = field(default_factory=dict)
    files: dict[str, Signature] = field(default_factory=dict)
    is_settled: bool = True
    """Whether a later change is certain to be detected."""

    def refreshed(self, tree: Tree, now_ns: int) -> ListingSnapshot:
        """The same folders and files, now, without those that are gone."""
        look = ListingSnapshot(tree, now_ns)
        for path, before in sorted(self.folders.items()):
            if found := look_into(tree, path, now_ns, before):
                look.folders[path] = found
        look.files = {path: signature_of(path, now_ns) for path in self.files}
        return look

    def is_as(self, other: ListingSnapshot) -> bool:
        """Whether everything that the answer depends on is equal in both."""
        if not self.is_settled or _YOUNG in self.files.values() or self.files != other.files:
            return False
        return len(self.folders) == len(other.folders) and all(
            folder.is_as(other.folders[path]) for path, folder in self.folders.items()
        )

    def at(self, path: str) -> Folder | None:
        """A folder from the snapshot, read now if it is not in it; None if there is none."""
        found = self.folders.get(path)
        if found is None and (found := look_into(self.tree, path, self.now_ns, None)):
            self.is_settled &= found.signature != _YOUNG and len(self.folders) < FOLDERS_MAX
            self.folders[path] = found
            if IGNORE_FILE in found.names:
                self.depend_on(self.full(path, IGNORE_FILE))
        return found

    def full(self, *names: str) -> str:
        return os.path.join(self.tree.root, *names)

    def depend_on(self, *files: str) -> None:
        """Add files, existing or not."""
        for file in files:
            self.files.setdefault(file, signature_of(file, self.now_ns))


class ProjectListing:
    """The paths of one project's files, relative to its root."""

    def __init__(self, root: str, git_timeout_s: float, walked_max: int) -> None:
        """Nothing is read before the first call. A walk stops at this many paths: the root may be a whole disk."""
        self._root = root
        self._git = GitWorkTree(root, git_timeout_s)
        self._walked_max = walked_max
        self._look: ListingSnapshot | None = None
        self._paths: Sequence[str] = ()
        self._inputs: Inputs | None = None
        self._ignored: dict[str, bool] = {}
        self._silent_until_ns = 0

    def paths(self, tree: Tree, now_ns: int) -> Sequence[str]:
        """The current paths; the same object while they are unchanged."""
        self._git.check = tree.check
        before = self._look
        look = before.refreshed(tree, now_ns) if before else ListingSnapshot(tree, now_ns)
        if before is None or not before.is_as(look):
            if before is None or not self._has_rules_of(before, look):
                self._inputs, self._ignored = None, {}
            self._look = None
            self._paths = tuple(self._asked(ListingSnapshot(tree, now_ns, look.folders)))
        else:
            # Including the times of folders in which files were only replaced.
            self._look = look
        return self._paths

    def detach(self) -> None:
        """Stop sharing mutable state with the listing that this one is a copy of."""
        self._git = copy.copy(self._git)
        self._ignored = dict(self._ignored)

    @property
    def folders(self) -> Collection[str]:
        """The folders that the latest answer depends on; empty if it was not cached."""
        return self._look.folders.keys() if self._look else ()

    def has_same_rules(self, now_ns: int) -> bool:
        """Whether the latest answer is still valid if nothing has happened in its folders."""
        if self._look is None or not self._look.is_settled:
            return False
        return all(signature_of(path, now_ns) == before != _YOUNG for path, before in self._look.files.items())

    def _has_rules_of(self, before: ListingSnapshot, look: ListingSnapshot) -> bool:
        """Whether ignore rules, and the configuration that names them, are unchanged."""
        index = self._inputs.index if self._inputs else ""
        return all(
            look.files[path] == signature != _YOUNG for path, signature in before.files.items() if path != index
        ) and _with_rules(before.folders) == _with_rules(look.folders)

    def _asked(self, look: ListingSnapshot) -> Sequence[str]:
        look.depend_on(*entries_above(self._root))
        look.depend_on(*(look.full(path, IGNORE_FILE) for path in _with_rules(look.folders)))
        try:
            listed = self._by_git(look) if look.now_ns >= self._silent_until_ns else None
        except (OSError, subprocess.SubprocessError, TooMuchError) as error:
            # No git, or one that does not answer properly: a later scan tries again.
            listed = None
            if isinstance(error, subprocess.TimeoutExpired):
                self._silent_until_ns = look.now_ns + SILENCE_NS
        if listed is None:
            return list(self._walked(ListingSnapshot(look.tree, look.now_ns)))
        paths = listed or list(self._walked(look))
        self._look = look
        return paths

    def _by_git(self, look: ListingSnapshot) -> list[str]:
        """The files that git lists; empty without a repository, outside a work tree, or for an ignored folder."""
        if all(look.files[entry] == _ABSENT for entry in entries_above(self._root)):
            return []
        self._inputs = self._inputs or self._git.inputs()
        if self._inputs is None:
            look.is_settled = False
            return []
        look.depend_on(self._inputs.index, *self._inputs.rules)
        listed = [path for path in self._git.files() or [] if _is_within_reach(path)]
        kept = self._looked_through(look, listed)
        look.folders = {path: look.folders[path] for path in kept if path in look.folders}
        return listed

    def _looked_through(self, look: ListingSnapshot, listed: Iterable[str]) -> set[str]:
        """The folders in which git looks for files: those that contain some, and others that are not ignored."""
        kept = _folders_of(listed)
        unknown = [inner for folder in tuple(kept) for inner in self._inside(look, folder) if inner not in kept]
        while unknown and len(kept) <= FOLDERS_MAX:
            below = self._not_ignored(unknown)
            kept.update(below)
            unknown = [inner for folder in below for inner in self._inside(look, folder)]
        return kept

    def _not_ignored(self, folders: Iterable[str]) -> list[str]:
        new = [folder for folder in folders if folder not in self._ignored]
        ignored = self._git.ignored(new)
        self._ignored.update({folder: folder in ignored for folder in new})
        return [folder for folder in folders if not self._ignored[folder]]

    def _inside(self, look: ListingSnapshot, folder: str) -> list[str]:
        """The folders in a folder; git does not look into nested repositories."""
        found = look.at(folder)
        if found is None or (REPOSITORY in found.names and folder):
            return []
        return [os.path.join(folder, name) for name in sorted(found.folders) if name != REPOSITORY]

    def _walked(self, look: ListingSnapshot) -> Iterator[str]:
        """The paths without hidden and generated folders, without following links; at most as many as wanted."""
        waiting, count = [""], 0
        while waiting and count < self._walked_max and len(look.folders) < FOLDERS_MAX:
            folder = waiting.pop()
            found = look.at(folder)
            # A virtual environment under any name.
            if found is None or (folder and "pyvenv.cfg" in found.names):
                continue
            names = (name for name in sorted(found.names - found.folders) if not _is_secret(name))
            for name in names:
                count += 1
                yield os.path.join(folder, name)
            inner = (name for name in sorted(found.folders, reverse=True) if _is_walked(name))
            waiting += [os.path.join(folder, name) for name in inner]


def look_into(tree: Tree, path: str, now_ns: int, before: Folder | None) -> Folder | None:
    """A folder now; the same object if its times are unchanged. None if there is none."""
    try:
        status = tree.status(path)
        if not stat.S_ISDIR(status.st_mode):
            return None
        signature = _signature(status, now_ns)
        if before is not None and before.signature == signature != _YOUNG:
            return before
        listed = tree.list_names(path)
    except (OSError, OutsideProjectError, TooMuchError):
        return None
    return Folder(signature, frozenset(listed.others + listed.folders), frozenset(listed.folders))


def signature_of(path: str, now_ns: int) -> Signature:
    """A value that changes with a file; empty if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return _ABSENT
    # Of a repository's own folder only its identity matters.
    return (status.st_ino, status.st_dev) if stat.S_ISDIR(status.st_mode) else _signature(status, now_ns)


def _signature(status: os.stat_result, now_ns: int) -> Signature:
    if max(status.st_mtime_ns, status.st_ctime_ns) >= now_ns - RACY_NS:
        return _YOUNG
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return (status.st_mtime_ns, status.st_ctime_ns, size, status.st_ino, status.st_dev)


def _with_rules(folders: Mapping[str, Folder]) -> set[str]:
    """The folders with a file of ignore rules."""
    return {path for path, folder in folders.items() if IGNORE_FILE in folder.names}


def _is_within_reach(path: str) -> bool:
    """Whether such a file can exist for us: an index may name endlessly nested folders."""
    return len(path) <= PATH_CHARS_MAX and path.count("/") <= DEPTH_MAX


def _folders_of(paths: Iterable[str]) -> set[str]:
    """The folders that contain the paths, and those above, with the root as the empty text.

    Raises TooMuchError if they take more characters than any real list of paths would.
    """
    folders, chars = {""}, 0
    for path in paths:
        folder = os.path.dirname(path)
        while folder not in folders:
            folders.add(folder)
            if (chars := chars + len(folder)) > OUTPUT_BYTES_MAX:
                raise TooMuchError("git lists more folders than files could have")
            folder = os.path.dirname(folder)
    return folders


def _is_secret(name: str) -> bool:
    return name in SECRET_FILES or name.startswith(".env.")


def _is_walked(name: str) -> bool:
    return not name.startswith(".") and name not in SKIPPED_FOLDERS
