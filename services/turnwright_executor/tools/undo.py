"""undo: take back what a turn changed in project files, for clients.

The records of the turn's commands have the diff of each file and the hash of what was written. A file that still has
this hash is restored by the diffs, the latest first; the result must have the hash of the file before the turn. From
there on it is a change of files like any other: confined, compared by hashes, safe to carry out again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace
from turnwright_values.types import Entry, FileEdit, WrittenFile

from turnwright_core.patterns.patch import hunks_of, without_hunks
from turnwright_core.streams import record_of_channel
from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.tools.contract import Context, Proposed, RefusedError, refusal
from turnwright_executor.tools.files import CONFLICT, INVALID, carry_out, change_edit, file_proposal, removal_edit
from turnwright_executor.tools.listing import LISTED_MAX, listed
from turnwright_executor.tools.parameters import ToolParameter
from turnwright_executor.tools.paths import PathItem, normalized, read_file
from turnwright_executor.wire.command_records import files_in
from turnwright_grammar.reply import Command

UNDONE: Final = "undone"
"""Attribute of the record: the number of the turn."""

LEFT: Final = "left"
"""Attribute of the record: why files were left as they are, a sentence for each."""

RAN: Final = "ran"
"""Attribute of the record: what is to be known of the turn's shell commands, whose changes are not taken back."""

COMMANDS_MAX: Final = 5
"""Shell commands of the turn that are named; the rest is counted."""

TURNS_MAX: Final = 200
"""How many turns are looked through for one that changed files."""

_SINCE: Final = (
    "it is not what the turn made of it any more. Take back what changed it first, or edit it by hand from the diff of "
    "the run."
)
_NO_DIFF: Final = "its content before the turn was not kept. Restore it from version control."
_SHELL: Final = {
    "create": "a shell command created it. Remove it by hand if it is not wanted.",
    "change": "a shell command changed it, which is not recorded. Restore it from version control.",
    "remove": "a shell command removed it, which is not recorded. Restore it from version control.",
}
"""By the kind of the change."""


class Undo:
    """Takes back the file changes of one turn."""

    name = "undo"
    parameters = (
        ToolParameter("turn", "Number of the turn; by default the latest one that changed files.", "integer"),
    )
    effect_class = EffectClass.IDEMPOTENT

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        """Restore the files. What is said about it was stored with the proposal."""
        done = await carry_out(effect, command, context)
        [record] = await context.entries.get([context.record_path])
        turn, left = record.attributes.get(UNDONE), record.attributes.get(LEFT, ())
        if done.outcome:
            return done
        ran = record.attributes.get(RAN, ())
        return replace(done, body="\n".join([f"Undid turn {turn}:", done.body, *left, *ran]))

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        turn, records = await self._turn(command, context)
        written: dict[str, list[WrittenFile]] = {}
        for record in sorted(records, key=lambda entry: entry.position):
            for file in files_in(record.record):
                written.setdefault(file.path, []).append(file)
        by_shell = {path: kind for path, kind in _listed(records) if path not in written}
        left = [f"{path} stays as it is: {_SHELL.get(kind, _SINCE)}" for path, kind in by_shell.items()]
        edits: list[FileEdit] = []
        for path, files in written.items():
            try:
                edits.extend(await _restored(files, context))
            except RefusedError as error:
                left.append(f"{path} stays as it is: {error.done.body}")
        # Nothing is deleted before what replaces it is there.
        edits.sort(key=lambda edit: edit.content is None)
        left = listed(left, LISTED_MAX).split("\n") if left else []
        ran = await _ran(turn, records, context)
        if not edits:
            why = left or ["Its files are as they were before it."]
            raise refusal(CONFLICT, "\n".join([f"Nothing of turn {turn} was taken back.", *why, *ran]))
        made = file_proposal(edits, command)
        noted = {LEFT: left, RAN: ran}
        return replace(made, attributes={UNDONE: turn, **{name: lines for name, lines in noted.items() if lines}})

    async def _turn(self, command: Command, context: Context) -> tuple[int, Sequence[Entry]]:
        """The turn to take back, and its records. Raises RefusedError if there is none."""
        given = command.attributes.get("turn", "").strip()
        if given:
            if not (given.isascii() and given.isdecimal() and 0 < int(given) <= context.turn):
                raise refusal(INVALID, f"There is no turn {given}: the run has {context.turn}.")
            records = await _records(int(given), context)
            if not _has_changes(records):
                ran = await _ran(int(given), records, context)
                raise refusal(INVALID, "\n".join([f"Turn {given} changed no files.", *ran]))
            return int(given), records
        past = await context.entries.find(f"log://call_*/{self.name}/*", bodies=False)
        undone = {entry.attributes.get(UNDONE) for entry in past if not entry.outcome and entry.state.is_settled}
        for turn in range(context.turn, max(0, context.turn - TURNS_MAX), -1):
            records = await _records(turn, context)
            if turn not in undone and _has_changes(records):
                return turn, records
        raise refusal(INVALID, f"None of the latest {TURNS_MAX} turns changed files, or all were taken back.")


async def _records(turn: int, context: Context) -> Sequence[Entry]:
    return await context.entries.find(f"log://turn_{turn}/**", bodies=False)


async def _ran(turn: int, records: Iterable[Entry], context: Context) -> list[str]:
    """What a person has to look after: the shell commands that the turn has started, in their order."""
    channels = await context.entries.find(f"sh://turn_{turn}/**", bodies=False)
    started = {channel[0] for entry in channels if (channel := record_of_channel(entry.path))}
    ran = [str(record.attributes.get("target", "")) for record in records if record.path in started]
    if not ran:
        return []
    more = [f"and {len(ran) - COMMANDS_MAX} more"] if len(ran) > COMMANDS_MAX else []
    named = ", ".join([*(f"`{command}`" for command in ran[:COMMANDS_MAX]), *more])
    return [f"What shell commands of turn {turn} changed is not taken back; look after it yourself: {named}"]


def _listed(records: Iterable[Entry]) -> Iterable[tuple[str, str]]:
    """Path and kind of each change in the lists of records, which shell commands have too."""
    for record in records:
        for one in record.attributes.get("changed", ()):
            yield str(one.get("path", "")), str(one.get("kind", ""))


def _has_changes(records: Iterable[Entry]) -> bool:
    return any(record.attributes.get("changed") for record in records)


async def _restored(files: Sequence[WrittenFile], context: Context) -> Sequence[FileEdit]:
    """The edit that takes back some changes of one file; none if they are taken back already. Raises RefusedError."""
    first, last = files[0], files[-1]
    path = await normalized(last.path, context, writing=True)
    if path != last.path:
        raise refusal(CONFLICT, f"it now leads to {path}, which is another file.")
    now = await read_file(path, context)
    if (now.hash if now else None) == first.base_hash:
        return ()
    if (now.hash if now else None) != last.hash or any(one.hash != then.base_hash for one, then in pairwise(files)):
        raise refusal(CONFLICT, _SINCE)
    item = PathItem(path, now.text, now.hash, encoding=now.encoding) if now else None
    if first.base_hash is None:
        return (removal_edit(item),) if item else ()
    text = _before(files, now.text if now else "")
    if text is None or hashlib.sha256(text.encode()).hexdigest() != first.base_hash:
        raise refusal(CONFLICT, _NO_DIFF)
    return (replace(change_edit(item, path, text), encoding=first.encoding),)


def _before(files: Sequence[WrittenFile], text: str | None) -> str | None:
    """The text of a file before the changes; None if their diffs do not say it."""
    for file in reversed(files):
        if text is None or file.patch is None:
            return None
        text = without_hunks(text, hunks_of(file.patch))
    return text
