"""The files that a loop changed, according to the records of its commands.

For a shell command that is the difference after it ended. Files ignored by version control are not compared, nor are
projects with very many files; then only the fact is reported that commands may have changed something.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from rich.console import Console
from rich.text import Text
from turnwright.types.v1 import entry_pb2, run_pb2
from turnwright.types.v1.command_record_pb2 import WrittenFile

from turnwright_cli.effects import diff_view
from turnwright_cli.exit_codes import DIFFERENT, DONE, FAILED
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import console, put, show_lines
from turnwright_cli.plain import safe_line, safe_text
from turnwright_cli.records import attributes_of
from turnwright_cli.run_list import open_run
from turnwright_client import Client
from turnwright_core.json_text import JsonObject
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
    branch: str = ""
    """Where they are, if the run has a place of its own."""

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.more or self.shell)


def changes_in(records: Iterable[entry_pb2.Entry], loop: int) -> FileChanges:
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


def _add(found: dict[str, FileChange], file: JsonObject) -> None:
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
    """The combination of two changes to a file; empty if the second undoes the first."""
    if first == "create":
        return "" if then == "remove" else "create"
    return "change" if then == "create" and first == "remove" else then


def _shell_command(entry: entry_pb2.Entry) -> str:
    """The record of the command that a channel belongs to. A command has channels once it was started."""
    channel = record_of_channel(entry.path) if scheme_of(entry.path) == "sh" else None
    return channel[0] if channel else ""


def change_lines(changes: FileChanges) -> Iterator[str]:
    if changes.is_empty:
        yield "changed files: none"
    if changes.files:
        yield "changed files:"
    for change in changes.files:
        verb = {"create": "created", "remove": "removed"}.get(change.kind, "changed")
        counted = min(change.added, change.removed) >= 0
        yield f"  {verb} {safe_line(change.path)}" + (f" (+{change.added} -{change.removed})" if counted else "")
    if changes.more:
        yield f"  and {changes.more} more"
    if changes.shell:
        commands = "A stopped command" if changes.shell == 1 else f"{changes.shell} stopped commands"
        yield f"{commands} may have changed files; see `git status`."
    if changes.branch and not changes.is_empty:
        yield f"on branch {safe_line(changes.branch)}"


class RecordedChange(Struct, frozen=True):
    """One file that a command changed; without `file`, only its path is recorded."""

    entry: entry_pb2.Entry
    path: str
    file: WrittenFile | None = None

    @property
    def patch(self) -> str:
        """The diff with the names of files that git and patch expect; empty if there is none."""
        file = self.file
        if file is None or not file.patch:
            return ""
        body = file.patch.split("\n", 2)[2]
        before = f"a/{file.path}" if file.HasField("base_hash") else "/dev/null"
        after = f"b/{file.path}" if file.HasField("hash") else "/dev/null"
        return f"--- {before}\n+++ {after}\n{body}"


async def changes_of(client: Client, run: run_pb2.Run, loop: int) -> FileChanges:
    """The files that the loop changed, including before this command followed it."""
    found = [client.list_entries(run.project, run.run, pattern, bodies=False) for pattern in RECORDS]
    changes = changes_in([entry for entries in found async for entry in entries], loop)
    changes.branch = run.place.branch
    return changes


async def recorded_changes(client: Client, project: str, run: str) -> list[RecordedChange]:
    entries = [entry async for entry in client.list_entries(project, run, "log://**", bodies=False)]
    return [change for entry in sorted(entries, key=lambda one: one.position) for change in changes_of_entry(entry)]


def changes_of_entry(entry: entry_pb2.Entry) -> Iterator[RecordedChange]:
    files = entry.record.settled.files
    yield from (RecordedChange(entry, file.path, file) for file in files)
    known = {file.path for file in files}
    for one in attributes_of(entry).get(CHANGED, ()):
        if (path := str(one.get("path", ""))) not in known:
            yield RecordedChange(entry, path)


def show_recorded(call: Invocation, changes: Sequence[RecordedChange]) -> int:
    if call.as_json:
        return show_lines(list({change.entry.path: change.entry for change in changes}.values()))
    show_changes(console(), changes)
    return DONE


def show_changes(out: Console, changes: Iterable[RecordedChange]) -> None:
    """Print the diffs: titled and coloured on a terminal; in a pipe alone, with the rest on standard error."""
    shown = ""
    for change in changes:
        title = _title(change.entry)
        if out.is_terminal and title != shown:
            put(out, Text(title, style="bold"))
        shown = title
        if not change.patch:
            _note(out, f"{safe_line(change.path)}: {_without_diff(change)}")
        elif out.is_terminal:
            put(out, diff_view(change.patch, styled=True))
        else:
            out.file.write(change.patch)
    if not shown:
        _note(out, "No command of the run has changed files.")


def _title(entry: entry_pb2.Entry) -> str:
    attributes = attributes_of(entry)
    words = " ".join(filter(None, (str(attributes.get("tool") or ""), str(attributes.get("target") or ""))))
    by = f"turn {entry.turn}" if not entry.path.startswith("log://call_") else f"a client after turn {entry.turn}"
    return f"{by}: {safe_line(words, 100)}"


def _without_diff(change: RecordedChange) -> str:
    if change.file is None:
        return "changed by a shell command, whose changes are not recorded as a diff"
    if change.file.HasField("patch"):
        return "created without content" if change.file.HasField("hash") else "removed; it had no content"
    return "no diff was kept: it is not text, or the diff was too long"


def _note(out: Console, text: str) -> None:
    if out.is_terminal:
        put(out, Text(text, style="dim"))
    else:
        print(text, file=sys.stderr)


async def undo(call: Invocation, *, run: str, turn: int) -> int:
    async with open_run(call, run) as (client, project, found):
        record = await undone(client, project, found.run, turn)
    if call.as_json:
        show_lines([record])
    else:
        show_undone(console(), record)
    if record.outcome:
        return FAILED
    return DIFFERENT if attributes_of(record).get("left") else DONE


async def undone(client: Client, project: str, run: str, turn: int = 0) -> entry_pb2.Entry:
    """The record of taking back a turn; 0: the latest one that changed files."""
    attributes = {"turn": str(turn)} if turn else {}
    return await client.call_tool(project, run, "undo", attributes)


def show_undone(out: Console, record: entry_pb2.Entry) -> None:
    first, *rest = safe_text(record.body).split("\n")
    put(out, Text(first, style="yellow" if record.outcome else "bold"))
    for line in rest:
        put(out, Text(f"  {line}", style="yellow" if "stays as it is" in line or "not taken back" in line else ""))
