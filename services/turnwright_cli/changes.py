"""What a loop changed in the files of its project, from the records of its commands.

What shell commands changed is not among it: nobody watches them. That there were some is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from turnwright.types.v1 import entry_pb2

from turnwright_cli.plain import safe_line
from turnwright_cli.records import attributes_of
from turnwright_core.entries import State
from turnwright_core.values import mutable

CHANGED = "changed"
"""Attribute of a record that lists what its command did to files."""


@mutable
class FileChange:
    """One file: what became of it over the loop, and lines added and removed; -1 where nobody counted them."""

    path: str
    kind: str
    added: int = 0
    removed: int = 0


def changes_in(records: Iterable[entry_pb2.Entry], loop: int) -> list[FileChange]:
    """The files that a loop's commands created, changed and removed, by path; one that came and went is left out."""
    found: dict[str, FileChange] = {}
    for entry in records:
        if entry.loop != loop:
            continue
        for told in attributes_of(entry).get(CHANGED, ()):
            _add(found, told)
        if _is_shell(entry):
            found.setdefault("", FileChange("", "shell")).added += 1
    shell = found.pop("", None)
    files = [found[path] for path in sorted(found) if found[path].kind]
    return [*files, shell] if shell else files


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


def _is_shell(entry: entry_pb2.Entry) -> bool:
    settled = State(entry.state) in (State.RESOLVED, State.FAILED)
    return settled and entry.path.startswith("log://") and attributes_of(entry).get("tool") == "sh"


def change_lines(changes: Sequence[FileChange]) -> Iterator[str]:
    """A line for each file, below a title."""
    files = [change for change in changes if change.kind != "shell"]
    commands = sum(change.added for change in changes if change.kind == "shell")
    if files:
        yield "changed files:"
    for change in files:
        verb = {"create": "created", "remove": "removed"}.get(change.kind, "changed")
        counted = min(change.added, change.removed) >= 0
        yield f"  {verb} {safe_line(change.path)}" + (f" (+{change.added} -{change.removed})" if counted else "")
    if commands:
        yield f"  {'and ' if files else ''}whatever {commands} shell command{'' if commands == 1 else 's'} changed"
