"""File changes: proposing them, and carrying them out after acceptance.

A change may be carried out twice if a process dies in between: a file that already has the target content counts as
done. Source: rows RU009, RU204, RU205; architecture 6 and 11.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, cast

from msgspec.structs import replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Entry, FileEdit, FileEffect, Tier, Visibility, WrittenFile

from turnwright_core.limits import PATCH_BYTES_MAX, RECORD_BYTES_MAX
from turnwright_core.patterns.patch import unified_patch
from turnwright_core.streams import STOPPED
from turnwright_core.text import count_tokens, cut_bytes, scheme_of
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.command_record import CommandRecord, Done, failed
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.domain.encodings import encoded
from turnwright_executor.tools.attributes import summary_of, visibility_of
from turnwright_executor.tools.contract import Context, Proposed, RefusedError, refusal
from turnwright_executor.tools.listing import LISTED_MAX, changed_files, line_count, listed, plural
from turnwright_executor.tools.paths import (
    BATCH_PATHS_MAX,
    PathItem,
    file_attributes,
    find_items,
    get_item,
    is_pattern,
    not_found,
    read_file,
    removal_write,
)
from turnwright_executor.tools.ports import FileText, OutsideProjectError
from turnwright_executor.wire.command_records import effect_bytes
from turnwright_grammar.reply import Command

EFFECT_BYTES_MAX: Final = RECORD_BYTES_MAX - 64 * 1024
"""Maximum size of an effect together with its command, in bytes: both are in one record."""

CONFLICT: Final = "conflict:409"
INVALID: Final = "invalid:400"
CONFLICT_CHARS_MAX: Final = 8000
"""How much of a file the model reads with a conflict, in characters."""

_CUT: Final = "... "
_CUT_BYTES: Final = 128
"""Room for the line that says how much of a diff is not shown."""


class FileTool:
    """A tool that changes entries at once, and files after acceptance."""

    effect_class = EffectClass.IDEMPOTENT

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        return await carry_out(effect, command, context)

    async def _items(self, path: str, context: Context) -> list[PathItem]:
        """What a path or a pattern names. Raises RefusedError if that is nothing."""
        if not is_pattern(path):
            return [await get_item(path, context)]
        if found := await find_items(path, context, self._settings.matches_max):
            return found
        raise RefusedError(await not_found(path, context))

    def _check_size(self, path: str, text: str) -> None:
        """Raises RefusedError for a text that is too long for `known://`: one fact per entry (RU069, RU221, C17)."""
        tokens, most = count_tokens(text, self._settings.token_divisor), self._settings.known_tokens_max
        if scheme_of(path) == "known" and tokens > most:
            raise refusal(
                "too_large:413",
                f"{path} would hold {tokens} tokens; an entry of known:// holds at most {most}. "
                "Write one fact per entry, split the rest over several paths such as known://topic/part, and leave out "
                "what <get> can bring back from its source.",
            )


def change_edit(item: PathItem | None, path: str, content: str, like: PathItem | None = None) -> FileEdit:
    """The edit that gives a file this content; `item` is the file as it is, None if there is none.

    A file keeps its encoding; a new one gets the permissions and the encoding of the file `like`, if given.
    """
    old = "" if item is None else item.text or ""
    patch = unified_patch(path, old, content)
    if item is not None:
        return FileEdit(path, item.hash, content, patch, encoding=item.encoding)
    model = like if like and like.is_file else PathItem("", None)
    return FileEdit(path, None, content, patch, like=model.path, encoding=model.encoding)


def removal_edit(item: PathItem) -> FileEdit:
    patch = (
        f"The binary file {item.path} goes away.\n" if item.text is None else unified_patch(item.path, item.text, "")
    )
    return FileEdit(item.path, item.hash, None, patch, encoding=item.encoding)


def file_proposal(edits: Sequence[FileEdit], command: Command, notes: Sequence[str] = ()) -> Proposed:
    """The proposal for some edits; notes say how an edit was understood.

    Raises RefusedError if they are too large to be stored, or contain what no file can.
    """
    for edit in edits:
        _check_encodable(edit)
    effect = FileEffect(tuple(_shortened(edits)))
    written = (command.body, *command.attributes, *command.attributes.values())
    size = effect_bytes(effect) + sum(len(text.encode(errors="replace")) for text in written)
    if size > EFFECT_BYTES_MAX:
        advice = "Change it in smaller parts, or use <sh>."
        raise refusal("too_large:413", f"The change has {size} bytes; at most {EFFECT_BYTES_MAX} are kept. {advice}")
    body = "\n".join([*map(summary_line, edits), *notes])
    return Proposed(effect, body, {"notes": list(notes)} if notes else {})


async def with_own_diffs(effect: FileEffect, command: Command, context: Context) -> FileEffect:
    """The effect of a plugin's tool with diffs computed here: people decide by them, whatever the tool says.

    Raises RefusedError if a file is not what the tool made its change from, and as `proposed`.
    """
    edits: list[FileEdit] = []
    for edit in effect.edits:
        file = await read_file(edit.path, context)
        if (file.hash if file else None) != edit.base_hash:
            raise refusal(CONFLICT, f"{edit.path} is not the file that the tool {command.name} made its change from.")
        old = file.text if file else ""
        if old is None:
            patch = f"The binary file {edit.path} is replaced.\n" if edit.content else f"{edit.path} goes away.\n"
        else:
            patch = unified_patch(edit.path, old, edit.content or "")
        edits.append(replace(edit, patch=patch, encoding=file.encoding if file else ""))
    return cast("FileEffect", file_proposal(edits, command).effect)


def _check_encodable(edit: FileEdit) -> None:
    """Arguments in JSON can contain unpaired surrogates, which have no bytes."""
    try:
        (edit.content or "").encode()
    except UnicodeEncodeError as error:
        text = f"The new text of {edit.path} holds half a character (at {error.start}). Write the whole one."
        raise refusal(INVALID, text) from None


async def carry_out(effect: Effect, command: Command, context: Context) -> Done:
    """Make the changes and update the entries of the files."""
    if not isinstance(effect, FileEffect):
        return failed(INVALID, f"<{command.name}> changes files and runs no commands.")
    before: dict[str, FileText | None] = {}
    if stale := await _stale(effect.edits, context, before):
        return _unwritten(stale, effect.edits)
    entries = await _entries_of(effect.edits, context)
    writes: list[EntryWrite] = []
    files: list[WrittenFile] = []
    # A record that has room for its effect has room for this.
    room = min(PATCH_BYTES_MAX, effect_bytes(effect))
    for index, edit in enumerate(effect.edits):
        if problem := await _replace(edit, context):
            ended = _unwritten(problem, effect.edits[index:])
            attributes = {**ended.attributes, **changed_files(map(_change, effect.edits, files))}
            return replace(ended, attributes=attributes, writes=tuple(writes), files=tuple(files))
        files.append(file := _written(edit, before.get(edit.path), room))
        room -= len((file.patch or "").encode())
        writes.extend(_mirrored(edit, command, entries))
    body = listed([*map(_result_text, effect.edits)], LISTED_MAX)
    return Done(
        body, attributes=changed_files(map(_change, effect.edits, files)), writes=tuple(writes), files=tuple(files)
    )


async def compared(record: CommandRecord, context: Context) -> Done | None:
    """What became of a change that nobody will carry out any more, by what its files hold; None: it did not happen."""
    effect, command = record.effect, record.command
    assert isinstance(effect, FileEffect)
    states = [await _found_state(edit, context) for edit in effect.edits]
    if all(state is Found.UNTOUCHED for state in states):
        return None
    if Found.UNTOUCHED not in states and Found.UNKNOWN not in states:
        # It was all done, so this only says what.
        return await carry_out(effect, command, context)
    done = [edit for edit, state in zip(effect.edits, states, strict=True) if state is Found.DONE]
    lines = [f"{_FOUND[state]}: {summary_line(edit)}" for edit, state in zip(effect.edits, states, strict=True)]
    files = tuple(_written(edit, None, PATCH_BYTES_MAX) for edit in done)
    attributes = changed_files(map(_change, done, files))
    body = "\n".join(["Stopped in the middle. Look at the files before you go on.", *lines])
    return replace(failed(STOPPED, body), attributes=attributes, files=files)


class Found(Enum):
    """What a file tells of an edit."""

    UNTOUCHED = "untouched"
    DONE = "done"
    UNKNOWN = "unknown"
    """It is neither as it was nor as it was to become, or cannot be read."""


_FOUND: Final = {
    Found.UNTOUCHED: "Not done",
    Found.DONE: "Done",
    Found.UNKNOWN: "Not known, because the file is something else now",
}


async def _found_state(edit: FileEdit, context: Context) -> Found:
    try:
        file = await read_file(edit.path, context)
    except RefusedError:
        return Found.UNKNOWN
    if (file.hash if file else None) == edit.base_hash:
        return Found.UNTOUCHED
    return Found.DONE if _is_done(edit, file) else Found.UNKNOWN


def _written(edit: FileEdit, before: FileText | None, room: int) -> WrittenFile:
    """What an edit did, with its diff unless that was cut, has more than `room` bytes, or is not known."""
    patch: str | None = edit.patch
    if edit.amended:
        # The file may be as it is now already before a command that is carried out again.
        is_known = (before.hash if before else None) == edit.base_hash and (before is None or before.text is not None)
        patch = unified_patch(edit.path, (before and before.text) or "", edit.content or "") if is_known else None
    elif edit.patch and (not edit.patch.startswith("--- ") or edit.patch[:-1].rpartition("\n")[2].startswith(_CUT)):
        patch = None
    if patch is not None and len(patch.encode()) > room:
        patch = None
    hash_ = None if edit.content is None else hashlib.sha256(edit.content.encode()).hexdigest()
    return WrittenFile(edit.path, edit.base_hash, hash_, patch, edit.encoding)


async def _entries_of(edits: Sequence[FileEdit], context: Context) -> dict[str, Entry]:
    paths = [edit.path for edit in edits]
    batches = [paths[start : start + BATCH_PATHS_MAX] for start in range(0, len(paths), BATCH_PATHS_MAX)]
    return {entry.path: entry for batch in batches for entry in await context.entries.get(batch)}


async def conflict_result(path: str, context: Context) -> Done:
    """The result for a command whose file has changed since the proposal: nothing was overwritten.

    The model reads the current content, up to CONFLICT_CHARS_MAX.
    """
    problem = f"{path} has changed since the proposal was made, and was left as it is."
    try:
        file = await read_file(path, context)
    except RefusedError as error:
        return failed(CONFLICT, f"{problem} {error.done.body}")
    if file is None:
        return failed(CONFLICT, f"{problem} There is no regular file there. See what is, then repeat what is needed.")
    if file.text is None:
        return failed(
            CONFLICT, f"{problem} It is not text, or too long ({file.bytes_} bytes). Look at it, then repeat."
        )
    return failed(CONFLICT, f"{problem} Repeat what is needed on what it says now:\n{_beginning(file.text)}")


def _beginning(text: str) -> str:
    if len(text) <= CONFLICT_CHARS_MAX:
        return text
    shown = text[:CONFLICT_CHARS_MAX]
    shown = shown[: shown.rfind("\n") + 1] or shown
    return f"{shown.rstrip()}\n[... {plural(line_count(text) - line_count(shown), 'more line')}; <get> shows them]"


def _unwritten(problem: Done, edits: Sequence[FileEdit]) -> Done:
    """The result for a conflict, with the content that a person wanted to write: it is stored nowhere else."""
    lost = {edit.path: edit.content for edit in edits if edit.amended and edit.content is not None}
    return replace(problem, attributes={**problem.attributes, "unwritten": lost}) if lost else problem


def _result_text(edit: FileEdit) -> str:
    """What was done. If a person edited the content, the model must not assume that its own text was written."""
    if not edit.amended:
        return summary_line(edit)
    what = f"wrote {edit.path} as the reviewer changed it, not as proposed"
    if not edit.patch:
        return f"{what}; look at it before you go on"
    return f"{what}\nFrom the proposed content to what is there now:\n{edit.patch.rstrip()}"


def summary_line(edit: FileEdit) -> str:
    """What an edit does, in one line: `edit src/app.py (+3 -1)`."""
    if edit.content is None:
        return f"remove {edit.path}"
    if edit.base_hash is None:
        return f"create {edit.path} ({plural(line_count(edit.content), 'line')})"
    lines = edit.patch.splitlines()[2:]
    added, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"edit {edit.path} (+{added} -{gone})"


def _change(edit: FileEdit, file: WrittenFile) -> dict[str, object]:
    """Path, kind, and lines added and removed, if they are known: of a change only by its diff."""
    kind = "remove" if file.hash is None else "change" if file.base_hash else "create"
    change: dict[str, object] = {"path": file.path, "kind": kind}
    if kind == "create":
        return change | {"added": line_count(edit.content or ""), "removed": 0}
    if file.patch is None:
        return change
    lines = file.patch.split("\n")[2:]
    added, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return change | {"added": added, "removed": gone}


def _shortened(edits: Iterable[FileEdit]) -> Iterable[FileEdit]:
    """The edits with their patches truncated, so that together they stay below the limit of a proposal."""
    left = PATCH_BYTES_MAX
    for edit in edits:
        patch = edit.patch
        size = len(patch.encode())
        if size > left:
            kept = cut_bytes(patch, max(0, left - _CUT_BYTES))
            kept = kept[: kept.rfind("\n") + 1]
            patch = f"{kept}{_CUT}{line_count(patch) - line_count(kept)} more lines; the whole has {size} bytes\n"
        left = max(0, left - len(patch.encode()))
        yield replace(edit, patch=patch)


async def _stale(edits: Sequence[FileEdit], context: Context, before: dict[str, FileText | None]) -> Done | None:
    """The result if a file has neither the content before nor after an edit; None: continue.

    `before` gets each file as it was read.
    """
    for edit in edits:
        try:
            file = before[edit.path] = await read_file(edit.path, context)
        except RefusedError as error:
            is_folder = error.done.outcome == INVALID
            return await conflict_result(edit.path, context) if is_folder else error.done
        if (file.hash if file else None) != edit.base_hash and not _is_done(edit, file):
            return await conflict_result(edit.path, context)
    return None


def _is_done(edit: FileEdit, file: FileText | None) -> bool:
    if edit.content is None or file is None:
        return edit.content is None and file is None
    # By its hash: a file may be too long to be read as text.
    return file.hash == hashlib.sha256(edit.content.encode()).hexdigest()


async def _replace(edit: FileEdit, context: Context) -> Done | None:
    try:
        done = await context.workspace.replace(edit.path, edit.content, edit.base_hash, edit.like, edit.encoding)
    except OutsideProjectError as error:
        return failed("permission:403", str(error))
    except OSError as error:
        return failed("unwritable:500", f"{edit.path} cannot be written: {error.strerror}.")
    return None if done else await conflict_result(edit.path, context)


def _mirrored(edit: FileEdit, command: Command, entries: Mapping[str, Entry]) -> list[EntryWrite]:
    """The write that updates a file's entry to the file's content (RU204).

    A new file is visible; an existing one keeps its visibility unless the command sets one (RU205).
    """
    entry = entries.get(edit.path)
    if edit.content is None:
        return [removal_write(edit.path)] if entry else []
    attributes = file_attributes(edit.content, len(encoded(edit.content, edit.encoding)), entry)
    if (summary := summary_of(command)) is not None:
        attributes["summary"] = summary
    visibility = visibility_of(command) or (Visibility.VISIBLE if edit.base_hash is None else Visibility.UNSPECIFIED)
    change = SetEntry(
        edit.content, to_attributes_json(attributes), visibility=visibility, initial_visibility=Visibility.VISIBLE
    )
    return [EntryWrite(edit.path, change, Tier.PLUGIN)]
