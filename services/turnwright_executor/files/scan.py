"""Scans the files of a project: those that version control knows or would add, else all but hidden and generated ones.

A scan reads only files whose times, size or identity have changed since the previous scan. A file written within two
seconds of a scan is read again by the next one, because its times may not reveal a second write. If the kernel reports
in which folders something happened, only their files are checked; if nothing happened, none.
Source: rows RU115, RU165, RU169.
"""

from __future__ import annotations

import copy
import os
import stat
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, Self

from msgspec.structs import replace

from turnwright_core.constraints import Constraints
from turnwright_core.limits import PATH_CHARS_MAX
from turnwright_core.patterns.typography import composed
from turnwright_executor.files.confinement import CLOSED, DEPTH_MAX, NAMES_MAX, Tree, is_closed, names_of, path_below
from turnwright_executor.files.contents import is_temporary, read, unread_hash
from turnwright_executor.files.file_threads import Check, on_trees
from turnwright_executor.files.folder_watch import FULL_EVERY_S, FolderWatch
from turnwright_executor.files.listing import RACY_NS, ProjectListing, Signature
from turnwright_executor.ports.workspaces import Scan, SeenFile
from turnwright_executor.tools.ports import ChangedFile, OutsideProjectError, ScannedFile, TooMuchError

# Names of files in another spelling: macOS decomposes letters and their accents, which everybody else composes.


def respelled(root: str, relative: str) -> str | None:
    """The path with its first missing name as the one sibling has it that differs only in composed letters (NFC, NFD).

    None: nothing is missing, or there is no such sibling, or several.
    """
    names = relative.split("/")
    if names[0] == "..":
        return None
    folder = root
    for index, name in enumerate(names):
        place = f"{folder}/{name}"
        if not os.path.lexists(place):
            with suppress(OSError), os.scandir(folder) as found:
                siblings = (one.name for one in islice(found, NAMES_MAX))
                same = [sibling for sibling in siblings if composed(sibling) == composed(name)]
                return "/".join([*names[:index], *same, *names[index + 1 :]]) if len(same) == 1 else None
            return None
        folder = place
    return None


FOLLOWS_MAX: Final = 3
"""Attempts of a scan until all folders of a project have been watched before they were listed."""

FULL_EVERY_NS: Final = round(FULL_EVERY_S * 1e9)


class _Seen(SeenFile, frozen=True):
    """A file as of the last scan; `signature` is None if its times cannot be trusted."""

    signature: Signature | None


class DiskScanner:
    """Implements ports.FileScanner for one watcher of one root.

    A file above `file_bytes_max` bytes is reported without text and with a hash of its size and time, because reading
    it whole at each change costs more than it is worth. Files beyond `files_max`, in path order, are left out. `root`
    and `home`, the runtime's own directory, are real paths; nothing below `home` is a file of the project.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        file_bytes_max: int,
        files_max: int,
        git_timeout_s: float = 10.0,
        constraints: Constraints | None = None,
        home: str | Path | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        watch: FolderWatch | None = None,
    ) -> None:
        """Nothing is read before the first scan. `watch` reports changed folders; None: there is no watch."""
        self.root = str(root)
        self._home = path_below(self.root, home)
        self._file_bytes_max = file_bytes_max
        self._files_max = files_max
        self._listing = ProjectListing(self.root, git_timeout_s, files_max)
        self._usable: tuple[Sequence[str], Sequence[str]] | None = None
        self._constraints = constraints or Constraints()
        self._paths_taken_in = self._constraints.paths_taken_in
        self._patterns_taken_in = self._constraints.patterns_taken_in
        self._takes_in = bool(self._paths_taken_in or self._patterns_taken_in)
        self._now_ns = now_ns
        self._seen: dict[str, _Seen] = {}
        # If constraints include files by pattern, it is unknown which folders the answer depends on.
        self._watch = None if self._takes_in else watch
        self._is_watched = False
        """Whether everything since the last scan has been reported."""
        self._full_due_ns = 0

    @property
    def total(self) -> int:
        return len(self._seen)

    @property
    def files(self) -> Mapping[str, SeenFile]:
        return self._seen

    def copied(self) -> Self:
        """A scanner of its own that has seen what this one has. Not while this one scans."""
        made = copy.copy(self)
        made.detach()
        return made

    def detach(self) -> None:
        """Stop sharing state with the scanner that this one is a copy of."""
        self._listing = copy.copy(self._listing)
        self._listing.detach()
        self._seen = dict(self._seen)
        self._watch = copy.copy(self._watch)
        if self._watch:
            self._watch.detach()

    async def scan(self, doubtful: Collection[str] = ()) -> Scan:
        """Scan again: files in path order. Raises OSError if the root cannot be read. `doubtful`: see FileScanner."""
        return await on_trees(lambda check: self._scan(frozenset(doubtful), check))

    async def states(self) -> dict[str, Signature]:
        """A change signature of every file of the project. Raises OSError if the root cannot be read."""
        return await on_trees(self._states)

    def _states(self, check: Check) -> dict[str, Signature]:
        with Tree(self.root, check) as tree:
            found = ((path, _file_status(tree, path)) for path in self._paths(tree, self._now_ns()))
            return {path: _signature(status) for path, status in found if status}

    def _scan(self, doubtful: frozenset[str], check: Check) -> Scan:
        began_ns = self._now_ns()
        folders = self._changed_folders(began_ns)
        if folders is not None and not folders:
            return self._looked_at_again(doubtful, check, began_ns) if doubtful else Scan((), ())
        before, self._seen = self._seen, {}
        # Set only at the end: an interrupted scan has consumed events without scanning everything.
        self._is_watched = False
        known = {path: seen for path, seen in before.items() if path not in doubtful} if doubtful else before
        with Tree(self.root, check) as tree:
            paths, is_watched = self._followed(tree, began_ns)
            if folders is not None:
                self._seen = {
                    path: known[path] for path in paths if path in known and path.rpartition("/")[0] not in folders
                }
                paths = [path for path in paths if path not in self._seen]
            changed = [file for path in paths if (file := self._looked_at(tree, path, known.get(path), began_ns))]
            # A path that is not listed, because it is ignored, may still exist.
            gone = {path for path in doubtful - self._seen.keys() if not _is_there(tree, path)}
        self._is_watched = is_watched
        return Scan(tuple(changed), tuple(sorted((known.keys() - self._seen.keys()) | gone)))

    def _looked_at_again(self, doubtful: frozenset[str], check: Check, began_ns: int) -> Scan:
        """The current state of doubtful paths, if nothing happened in the project's folders."""
        self._is_watched = False
        listed = self._usable[1] if self._usable else ()
        with Tree(self.root, check) as tree:
            for path in doubtful:
                self._seen.pop(path, None)
            own = [path for path in sorted(doubtful) if _holds(listed, path)]
            found = [file for path in own if (file := self._looked_at(tree, path, None, began_ns))]
            gone = {path for path in doubtful - self._seen.keys() if not _is_there(tree, path)}
        self._is_watched = True
        return Scan(tuple(found), tuple(sorted(gone)))

    def _changed_folders(self, now_ns: int) -> Collection[str] | None:
        """The folders to scan; None: all of them."""
        changed = self._watch.changed() if self._watch else None
        if not self._is_watched or now_ns >= self._full_due_ns or not self._listing.has_same_rules(now_ns):
            self._full_due_ns = now_ns + FULL_EVERY_NS
            return None
        return changed

    def _followed(self, tree: Tree, now_ns: int) -> tuple[Sequence[str], bool]:
        """The paths of all files, and whether their folders were watched before any of them is read."""
        paths = self._paths(tree, now_ns)
        for _ in range(FOLLOWS_MAX if self._watch else 0):
            folders = self._listing.folders
            if not folders or (self._watch and self._watch.follow(folders)):
                return paths, bool(folders)
            # Events from before the folders were watched.
            paths = self._paths(tree, now_ns)
        return paths, False

    def _paths(self, tree: Tree, now_ns: int) -> Sequence[str]:
        listed = self._listing.paths(tree, now_ns)
        if self._usable is None or self._usable[0] is not listed or self._takes_in:
            usable = {path for path in (*listed, *self._taken_in(tree)) if is_usable(path, self._home)}
            paths = sorted(path for path in usable if not self._is_ignored(tree, path))[: self._files_max]
            self._usable = listed, paths
        return self._usable[1]

    def _taken_in(self, tree: Tree) -> Iterator[str]:
        """Files that the project always includes: exact paths, and matches below a pattern's folder."""
        yield from map(self._as_there, self._paths_taken_in)
        for folder, patterns in self._patterns_taken_in.items():
            below = islice(all_paths(tree, folder), self._files_max)
            yield from (path for path in below if patterns.fit(path))

    def _as_there(self, path: str) -> str:
        """The path in the spelling of the file that there is."""
        for _ in range(0 if path.isascii() else DEPTH_MAX):
            if (respelling := respelled(self.root, path)) is None:
                break
            path = respelling
        return path

    def _is_ignored(self, tree: Tree, path: str) -> bool:
        tree.check()
        return self._constraints.is_ignored(path)

    def _looked_at(self, tree: Tree, path: str, before: _Seen | None, began_ns: int) -> ScannedFile | None:
        """The file if it is new or changed; remembers it in any case. None for links and missing files."""
        try:
            status = _file_status(tree, path)
            if status is None:
                return None
            signature = _signature(status)
            if before is not None and before.signature == signature:
                self._seen[path] = before
                return None
            file = self._read(tree, path, status)
        except (OSError, OutsideProjectError):
            return None
        if file is None:
            return None
        is_settled = max(status.st_mtime_ns, status.st_ctime_ns) < began_ns - RACY_NS
        chars = None if file.text is None else len(file.text)
        self._seen[path] = _Seen(file.hash, chars, signature if is_settled else None)
        if before is not None and before.hash == file.hash:
            return None
        return replace(file, is_added=self._constraints.is_added(path))

    def _read(self, tree: Tree, path: str, status: os.stat_result) -> ScannedFile | None:
        if status.st_size > self._file_bytes_max:
            return ScannedFile(path, None, unread_hash(status), status.st_size)
        file = read(tree, path, self._file_bytes_max)
        return None if file is None else ScannedFile(path, file.text, file.hash, file.bytes_)


def is_usable(path: str, home: str = "") -> bool:
    """Whether a path can be that of an entry: below the root, printable, not too long.

    Git reads names from an index that anybody may have written, a project's constraints may name anything, and so may a
    sandbox host.
    """
    if len(path) > PATH_CHARS_MAX or is_closed(path, home) or is_temporary(path.rpartition("/")[2]):
        return False
    with suppress(OutsideProjectError):
        return bool(names_of(path)) and _is_plain(path)
    return False


def all_paths(tree: Tree, folder: str) -> Iterator[str]:
    """The paths of all files in a folder, without version control's own, without following links."""
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        with suppress(OSError, OutsideProjectError, TooMuchError):
            listed = tree.list_names(place)
            above = f"{place}/" if place else ""
            for name in listed.others:
                tree.check()
                yield above + name
            waiting += (above + name for name in reversed(listed.folders) if name not in CLOSED)


def changes(before: Mapping[str, Signature], after: Mapping[str, Signature]) -> tuple[ChangedFile, ...]:
    kinds = {path: "change" if path in before else "create" for path in after if after[path] != before.get(path)}
    kinds |= dict.fromkeys(before.keys() - after.keys(), "remove")
    return tuple(ChangedFile(path, kinds[path]) for path in sorted(kinds))


def _holds(listed: Sequence[str], path: str) -> bool:
    place = bisect_left(listed, path)
    return place < len(listed) and listed[place] == path


def _file_status(tree: Tree, path: str) -> os.stat_result | None:
    """The status of a file; None for anything else, and for what is gone or inaccessible."""
    with suppress(OSError, OutsideProjectError):
        status = tree.status(path)
        return status if stat.S_ISREG(status.st_mode) else None
    return None


def _signature(status: os.stat_result) -> Signature:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def _is_there(tree: Tree, path: str) -> bool:
    with suppress(OSError, OutsideProjectError):
        tree.status(path)
        return True
    return False


def _is_plain(path: str) -> bool:
    # What is printable has none of these, and is most of all paths.
    is_printable = path.isprintable()
    return is_printable or not any(
        char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in path
    )
