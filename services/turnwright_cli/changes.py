"""What a loop changed in the files of its project, from the records of its commands.

Of a shell command it is what differed once it had ended. Files that version control ignores are not looked at, and a
project of very many files is not compared; then it is said that there were such commands.
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
"""Attribute of a record that lists what its command did to files."""

MORE = "changed_more"
"""Attribute with the number of files that the list has no room for."""

RECORDS = ("log://**", "sh://**")
"""Patterns of the entries that tell of it."""


class FileChange(Struct):
    """One file: what became of it over the loop, and lines added and removed; -1 where nobody counted them."""

    path: str
    kind: str
    added: int = 0
    removed: int = 0


class FileChanges(Struct):
    """What a loop changed: files by path, those that came and went left out."""

    files: list[FileChange]
    more: int = 0
    """Files that the records had no room for."""
    shell: int = 0
    """Shell commands of which nobody knows what they changed."""


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
        for told in attributes.get(CHANGED, ()):
            _add(found, told)
        changes.more += attributes.get(MORE, 0)
        if CHANGED in attributes:
            known.add(entry.path)
        elif record := _shell_command(entry):
            unknown.add(record)
    changes.files = [found[path] for path in sorted(found) if found[path].kind]
    changes.shell = len(unknown - known)
    return changes


def _add(found: dict[str, FileChange], told: dict[str, Any]) -> None:
    path, kind = str(told.get("path", "")), str(told.get("kind", ""))
    before = found.get(path)
    change = before or FileChange(path, kind)
    for name in ("added", "removed"):
        lines, count = getattr(change, name), told.get(name)
        setattr(change, name, lines + count if isinstance(count, int) and lines >= 0 else -1)
    if before is not None:
        change.kind = _both(before.kind, kind)
    found[path] = change


def _both(first: str, then: str) -> str:
    """What two changes of a file are together; empty where the second undoes the first."""
    if first == "create":
        return "" if then == "remove" else "create"
    return "change" if then == "create" and first == "remove" else then


def _shell_command(entry: entry_pb2.Entry) -> str:
    """The record of the command whose channel it is: one that was started has channels, however it ended."""
    channel = record_of_channel(entry.path) if scheme_of(entry.path) == "sh" else None
    return channel[0] if channel else ""


def change_lines(changes: FileChanges) -> Iterator[str]:
    """A line for each file, below a title."""
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
