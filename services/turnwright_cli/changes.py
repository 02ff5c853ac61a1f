"""The files that a loop changed, according to the records of its commands.

For a shell command that is the difference after it ended. Files ignored by version control are not compared, nor are
projects with very many files; then only the fact is reported that commands may have changed something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct
from turnwright.types.v1 import entry_pb2

from turnwright_cli.plain import safe_line
from turnwright_cli.records import attributes_of
from turnwright_core.streams import record_of_channel
from turnwright_core.text import scheme_of

CHANGED = "changed"
"""Attribute of a record with the list of files that its command changed."""

MORE = "changed_more"
"""Attribute with the number of files left out of that list."""

RECORDS = ("log://**", "sh://**")
"""Patterns of the entries with these attributes."""


class FileChange(Struct):
    """What happened to one file in the loop, with lines added and removed; -1 if they were not counted."""

    path: str
    kind: str
    added: int = 0
    removed: int = 0


class FileChanges(Struct):
    """The files that a loop changed, by path, without temporary ones that it created and removed."""

    files: list[FileChange]
    more: int = 0
    """Number of files that were left out of the records."""
    shell: int = 0
    """Shell commands whose changes are unknown."""


def changes_in(records: Iterable[entry_pb2.Entry], loop: int) -> FileChanges:
    """What the commands of a loop created, changed and removed."""
    found: dict[str, FileChange] = {}
    changes = FileChanges([])
    unknown: set[str] = set()
    known: set[str] = set()
    for entry in sorted(records, key=lambda entry: entry.position):
        if entry.loop != loop:
            continue
        attributes = attributes_of(entry)
        for file in attributes.get(CHANGED, ()):
            _add(found, file)
        changes.more += attributes.get(MORE, 0)
        if CHANGED in attributes:
            known.add(entry.path)
        elif record := _shell_command(entry):
            unknown.add(record)
    changes.files = [found[path] for path in sorted(found) if found[path].kind]
    changes.shell = len(unknown - known)
    return changes


def _add(found: dict[str, FileChange], file: dict[str, Any]) -> None:
    path, kind = str(file.get("path", "")), str(file.get("kind", ""))
    before = found.get(path)
    change = before or FileChange(path, kind)
    for name in ("added", "removed"):
        lines, count = getattr(change, name), file.get(name)
        setattr(change, name, lines + count if isinstance(count, int) and lines >= 0 else -1)
    if before is not None:
        change.kind = _both(before.kind, kind)
    found[path] = change


def _both(first: str, then: str) -> str:
    """The combination of two changes to a file; None if the second undoes the first."""
    if first == "create":
        return "" if then == "remove" else "create"
    return "change" if then == "create" and first == "remove" else then


def _shell_command(entry: entry_pb2.Entry) -> str:
    """The record of the command that a channel belongs to. A command has channels once it was started."""
    channel = record_of_channel(entry.path) if scheme_of(entry.path) == "sh" else None
    return channel[0] if channel else ""


def change_lines(changes: FileChanges) -> Iterator[str]:
    if changes.files:
        yield "changed files:"
    for change in changes.files:
        verb = {"create": "created", "remove": "removed"}.get(change.kind, "changed")
        counted = min(change.added, change.removed) >= 0
        yield f"  {verb} {safe_line(change.path)}" + (f" (+{change.added} -{change.removed})" if counted else "")
    if changes.more:
        yield f"  and {changes.more} more"
    if changes.shell:
        commands = "a shell command" if changes.shell == 1 else f"{changes.shell} shell commands"
        yield f"  {'and ' if changes.files else ''}whatever {commands} changed"
