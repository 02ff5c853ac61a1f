"""Syncing the project's files with their entries: changes on disk are written before a turn begins.

Source: rows RU115, RU165-RU169, RU204; architecture 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from turnwright_values.store import EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import State, Tier, Visibility

from turnwright_core.text import tokens_of
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.tokens import TOKEN_DIVISOR
from turnwright_executor.ports.workspaces import FileScanner, SeenFile
from turnwright_executor.tools.ports import ScannedFile

MANIFEST_PATH: Final = "log://turn_0/repo/manifest"
EMPTY_HASH: Final = hashlib.sha256(b"").hexdigest()
BATCH_CHARS: Final = 2 * 1024 * 1024
"""Characters of file text in one write request; at four bytes each they still fit into a message."""
BATCH_WRITES: Final = 2000


class FileSync:
    """What one run knows about the project's files."""

    def __init__(
        self,
        scanner: FileScanner,
        known: Mapping[str, str],
        token_divisor: int = TOKEN_DIVISOR,
    ) -> None:
        """`known` maps the paths that the run sees to the hashes of their bodies."""
        self._scanner = scanner
        self._divisor = token_divisor
        self._known = dict(known)
        self._has_scanned = False
        self._mirrored: set[str] = set()
        """Paths whose entries were updated by others since the last scan."""
        self._is_waiting = self._is_doubted = False

    @property
    def seen(self) -> int:
        """Files that were looked at, also while that goes on."""
        return len(self._files)

    @property
    def is_spoiled(self) -> bool:
        """Whether writes may not have reached the store: this state must not be used any more."""
        return self._is_waiting or self._is_doubted

    def written(self) -> None:
        self._is_waiting = False

    def rescan(self) -> None:
        """A write of others has not reached the store."""
        self._is_doubted = True

    async def writes(self) -> list[EntryWrite]:
        """The writes that bring the run's view up to date with the disk; none if nothing changed.

        Raises OSError if the project's root cannot be read.
        """
        self._is_waiting = True
        scan = await self._scanner.scan(self._mirrored if self._has_scanned else self._differing())
        self._mirrored = set()
        # The first scan may not know files that the run knows and that are no longer on disk.
        gone = scan.removed if self._has_scanned else sorted(self._known.keys() - self._files.keys())
        self._has_scanned = True
        if not scan.changed and not gone:
            return []
        writes = [self._write(file) for file in scan.changed if self._known.get(file.path) != _body_hash(file)]
        writes += [EntryWrite(path, RemoveEntry(), Tier.PLUGIN) for path in gone if path in self._known]
        for path in gone:
            self._known.pop(path, None)
        self._known.update({file.path: _body_hash(file) for file in scan.changed})
        return writes

    @property
    def _files(self) -> Mapping[str, SeenFile]:
        return self._scanner.files

    def _differing(self) -> set[str]:
        """Files that the scanner knows, but the run does not see in their current state."""
        known, empty = self._known, EMPTY_HASH
        return {
            path
            for path, file in self._files.items()
            if known.get(path) != (empty if file.chars is None else file.hash)
        }

    def _write(self, file: ScannedFile) -> EntryWrite:
        """Archived until somebody reads it, unless the project includes it with `add` (RU115, RU168)."""
        return _file_write(file, Visibility.VISIBLE if file.is_added else Visibility.ARCHIVED)

    def add_writes(self, writes: Iterable[EntryWrite]) -> None:
        """Others have updated these entries to what they made of the files: only differences are written again.

        A later command may have restored the file, so the next scan reports it in any case.
        """
        for write in writes:
            path, change = write.path, write.change
            if isinstance(change, SetEntry):
                body_hash = hashlib.sha256(change.body.encode()).hexdigest() if change.body is not None else None
                if body_hash in (None, self._known.get(path)):
                    # It was read, not changed.
                    continue
                self._known[path] = body_hash
            else:
                self._known.pop(path, None)
            self._mirrored.add(path)

    def manifest(self) -> EntryWrite:
        """The list of all files, written once in a run (RU165, RU166)."""
        files, divisor = sorted(self._files.items()), self._divisor
        lines = "\n".join(f"* {path} - {tokens_of(file.chars or 0, divisor)} tokens" for path, file in files)
        change = SetEntry(
            body=lines,
            attributes_json=to_attributes_json({"tool": "repo", "target": "manifest"}),
            visibility=Visibility.VISIBLE,
            state=State.RESOLVED,
        )
        return EntryWrite(MANIFEST_PATH, change, Tier.PLUGIN, turn=0)


def in_batches(writes: Sequence[EntryWrite]) -> Iterator[list[EntryWrite]]:
    """The writes in batches that fit into a message."""
    batch: list[EntryWrite] = []
    size = 0
    for write in writes:
        body = write.change.body if isinstance(write.change, SetEntry) else None
        size += len(body or "") + len(write.path)
        batch.append(write)
        if size >= BATCH_CHARS or len(batch) >= BATCH_WRITES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _file_write(file: ScannedFile, initial: Visibility) -> EntryWrite:
    attributes = {"bytes": file.bytes_} if file.text is not None else {"bytes": file.bytes_, "binary": True}
    change = SetEntry(
        body=file.text or "",
        attributes_json=to_attributes_json(attributes),
        initial_visibility=initial,
        state=State.RESOLVED,
    )
    return EntryWrite(file.path, change, Tier.PLUGIN)


def _body_hash(file: ScannedFile) -> str:
    return file.hash if file.text is not None else EMPTY_HASH
