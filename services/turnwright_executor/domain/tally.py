"""The tally of a loop: what it has done so far, turn by turn, by which its end is judged.

Each turn's result holds the tally up to that turn, so whoever continues a loop, or replays its verdicts, goes on from
what is stored. Source: C67.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from posixpath import normpath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import LoopTally, State, TurnResult

from turnwright_core.limits import PATH_CHARS_MAX
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.matching import match
from turnwright_core.patterns.typography import composed
from turnwright_core.tools import OF_AGENTS, TOOL_ORDER
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.endings import REJECTED_OUTCOME
from turnwright_executor.domain.policy import files_changed_by
from turnwright_grammar.reply import Command

FAILED_PATHS_MAX: Final = 32
"""Most files of which a tally says that their change failed."""

TOO_LARGE_OUTCOME: Final = "too_large:413"
"""Outcome of a command that is too long to be recorded."""

WORDS_ONLY: Final = frozenset({"think", "update"})
"""Tools whose commands do nothing but speak."""
_MOVED: Final = frozenset({"cp", "mv"})
_NAMED_BY: Final = {"set": "path", "rm": "path", "cp": "to", "mv": "to"}
"""Tools that change a file, and the attribute without which they name none."""

UNNAMED: Final = ""
"""In the place of a path: a command was to change a file that it does not name."""


class LostChange(Struct, frozen=True):
    """A command of a reply that was to change a file, and could not be read; `ordinal` commands stood before it."""

    tool: str
    path: str
    ordinal: int


def tally_before(recent: Iterable[TurnResult]) -> LoopTally:
    """The tally of a loop up to its latest turn with a verdict; `recent` are results of its turns, oldest first."""
    tallies = [result.tally for result in recent if result.tally]
    return tallies[-1] if tallies else LoopTally()


def tally_after(
    before: LoopTally,
    records: Sequence[CommandRecord],
    tools: Container[str],
    offered: Collection[str],
    names: Mapping[str, str],
    *,
    unread: int = 0,
    ignored: int = 0,
    lost: Iterable[LostChange] = (),
) -> LoopTally:
    """The tally after a turn whose records are settled.

    `tools` are all that exist, `offered` those of the turn; `names` are normalized names of files by the path that a
    command names. `unread` and `ignored` count commands of the reply that became no record, `lost` are the changes of
    files among them, in its order.
    """
    failed = dict.fromkeys(before.failed_paths)
    pending = [change for change in lost if change.tool in offered]
    known: list[CommandRecord] = []
    has_failed = False
    for ordinal, record in enumerate(records):
        while pending and pending[0].ordinal <= ordinal:
            failed |= _lost_path(pending.pop(0), names)
        is_known = record.tool in tools or record.tool in offered
        if is_known and not _names_nothing(record):
            known.append(record)
        for path in list(failed):
            if is_known and _changes(record, path, names):
                del failed[path]
        if record.state is State.FAILED and not (is_known and _is_refused(record, offered)):
            has_failed = True
            failed |= dict.fromkeys(_wanted(record, names))
        elif record.state is State.CANCELLED and has_failed:
            failed |= dict.fromkeys(_wanted(record, names))
    for change in pending:
        failed |= _lost_path(change, names)
    return LoopTally(
        commands=before.commands + sum(record.tool not in WORDS_ONLY for record in known),
        unknown_commands=before.unknown_commands + len(records) - len(known) + unread,
        ignored_commands=before.ignored_commands + ignored,
        failed_paths=tuple(failed)[:FAILED_PATHS_MAX],
    )


def lost_changes(command: Command, ordinal: int) -> list[LostChange]:
    """What a command would have changed that is broken or cut off; nothing if it changes no file."""
    if command.name not in _NAMED_BY:
        return []
    path = command.attributes.get(_NAMED_BY[command.name], "")
    if not path or len(path) > PATH_CHARS_MAX:
        return [LostChange(command.name, UNNAMED, ordinal)]
    # Of its body there may be nothing yet.
    changed = files_changed_by(replace(command, body=command.body or "?"))
    return [LostChange(command.name, one, ordinal) for one in changed[-1:]]


def _lost_path(change: LostChange, names: Mapping[str, str]) -> dict[str, None]:
    return {names.get(change.path, change.path): None}


def changed_names(records: Iterable[CommandRecord]) -> set[str]:
    """The paths of files as the commands of a turn name them, of which a tally needs the normalized names."""
    return {path for record in records for path in files_changed_by(record.command)}


def _names_nothing(record: CommandRecord) -> bool:
    """Whether a failed change does not say of what, so that it counts as one that could not be read."""
    attribute = _NAMED_BY.get(record.tool)
    is_failed = record.state is State.FAILED and record.outcome != TOO_LARGE_OUTCOME
    return bool(attribute and is_failed and not record.command.attributes.get(attribute))


def _is_refused(record: CommandRecord, offered: Collection[str]) -> bool:
    """Whether a person, or the mode or the settings of the run, refused the command."""
    return record.rejection is not None or record.outcome == REJECTED_OUTCOME or record.tool not in offered


def _wanted(record: CommandRecord, names: Mapping[str, str]) -> list[str]:
    """The files that a command was to change; of a copy or a move, what it would have made."""
    if _names_nothing(record):
        return [UNNAMED]
    paths = files_changed_by(record.command)
    if record.tool == "set" and record.outcome == TOO_LARGE_OUTCOME and not record.command.attributes:
        # Of a command that no record can hold only the target is known.
        paths = [record.target]
    return [names.get(path, path) for path in (paths[-1:] if record.tool in _MOVED else paths)]


def _changes(record: CommandRecord, path: str, names: Mapping[str, str]) -> bool:
    """Whether a command changed a file, or one that a pattern or folder names; any file for one that is not known."""
    kept = record.attributes.get("changed")
    listed = kept if isinstance(kept, list) else ()
    changed = [file.path for file in record.files]
    changed += [str(one.get("path", "")) for one in listed if isinstance(one, dict)]
    if record.state is State.RESOLVED:
        # What had the right content already is not written again.
        changed += [normpath(names.get(one, one)) for one in files_changed_by(record.command)]
        if _may_change_unseen(record) and path in " ".join((record.command.body, *record.command.attributes.values())):
            return True
    return any(path == UNNAMED or _is_at(path, one) for one in changed)


def _may_change_unseen(record: CommandRecord) -> bool:
    """Whether it may have changed files that nobody lists: those of a project that is too large, or of other tools."""
    is_command = record.tool == "sh" and "changed" not in record.attributes
    return is_command or record.tool in OF_AGENTS or (record.tool not in TOOL_ORDER and not record.files)


def _is_at(path: str, changed: str) -> bool:
    path, changed = composed(path), composed(changed)
    if changed == path or changed.startswith(f"{path}/"):
        return True
    try:
        return match(path, changed)
    except PatternError:
        return False
