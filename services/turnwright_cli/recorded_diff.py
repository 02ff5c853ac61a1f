"""What commands changed in project files, by the records of a run: `runs show --diff` and `/diff`.

Nothing is read from the host of the command line, which may not be the project's. In a pipe the diffs are exact, in the
order in which the changes happened, so that `patch -p1` and `git apply` take them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from rich.console import Console
from rich.text import Text
from turnwright.types.v1 import entry_pb2
from turnwright.types.v1.command_record_pb2 import WrittenFile

from turnwright_cli.changes import CHANGED
from turnwright_cli.effects import diff_view
from turnwright_cli.exit_codes import DONE
from turnwright_cli.invocation import Invocation
from turnwright_cli.json_lines import show_lines
from turnwright_cli.output import console, put
from turnwright_cli.plain import safe_line
from turnwright_cli.records import attributes_of
from turnwright_client import Client


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


async def recorded_changes(client: Client, project: str, run: str) -> list[RecordedChange]:
    """The changes of a run, in their order."""
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
