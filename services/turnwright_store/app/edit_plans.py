"""Plans for commands that edit messages: one edit, and perhaps a message to send again after it.

Indexes and ids are resolved to paths when a command is received, because the list may change while it is queued.
Source: rows RC03-RC05; decisions C40, C48.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace
from turnwright.types.v1.session_command_pb2 import (
    RemoveMessage,
    RetryFromIndex,
    SessionCommand,
    TruncateMessages,
    UpdateMessage,
    UserMessage,
)
from turnwright_values.types import Entry, LoopSettings, MessageKind, Mode

from turnwright_core.chat.timeline import APPENDED, kind_of
from turnwright_core.checks import invalid
from turnwright_core.wire.runs import loop_settings_from_pb
from turnwright_store.app import message_edits
from turnwright_store.app.history import get_turn_home
from turnwright_store.app.inheritance import asked_of, latest_asked, latest_of_user
from turnwright_store.app.message_edits import RewindResult
from turnwright_store.app.restore_trajectory import get_staged
from turnwright_store.app.session_commands import content_of
from turnwright_store.app.session_commands import kind_of as kind_of_command
from turnwright_store.domain.session_gates import CommandKind
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql.contents import find_entry
from turnwright_store.sql.runs import RunRow, bump_revision, get_run, write_run


class Edit(Struct, frozen=True, omit_defaults=True):
    """One edit, by the first field that is set; can be stored and applied later."""

    rewrite: str = ""
    """Path of a message whose content is replaced."""
    content: str = ""
    remove: str = ""
    """Path of a message to remove."""
    truncate: str = ""
    """Path of a message to remove with everything after it."""
    truncate_loop: int = 0
    """Sequence of a loop whose prompt is removed with everything after it."""
    restore: int = 0
    """Number of a turn whose final view is restored."""
    staged: str = ""
    """A staged document whose messages take the place of all."""


class Resend(Struct, frozen=True):
    """A message to send after an edit."""

    text: str
    settings: LoopSettings


class EditPlan(Struct, frozen=True):
    """The effects of a command."""

    edit: Edit | None = None
    resend: Resend | None = None


def settings_of(message: UserMessage, tx: Transaction, run: RunRow | None, images: tuple[str, ...]) -> LoopSettings:
    """The settings of a message's loop: as given, else what was asked of the latest loop of a user."""
    if not message.HasField("settings"):
        before = latest_asked(tx, run) if run else LoopSettings(Mode.ACT)
        return replace(before, budget=None, images=images)
    given = loop_settings_from_pb(message.settings)
    return replace(given, mode=given.mode or Mode.ACT, images=(*given.images, *images))


def plan_edit(
    tx: Transaction, run: RunRow, actor: str, command: SessionCommand, waiting: Mapping[str, str] | None = None
) -> EditPlan:
    """Plan a command. Raises ENTRY_NOT_FOUND, INVALID_FIELD, REVISION_CONFLICT.

    `waiting`: it will be queued, behind edits that give these messages other contents.
    """
    match kind_of_command(command):
        case CommandKind.TRUNCATE_MESSAGES:
            return EditPlan(_plan_truncation(tx, run, command.truncate_messages))
        case CommandKind.RETRY_FROM_INDEX:
            return _plan_retry(tx, run, command.retry_from_index)
        case CommandKind.REWIND_TO_TURN | CommandKind.RESTORE_FROM_TRAJECTORY:
            return EditPlan(_plan_restoration(tx, run, actor, command))
        case CommandKind.REGENERATE:
            return _plan_regeneration(tx, run, waiting)
        case CommandKind.UPDATE_MESSAGE:
            return _plan_update(tx, run, command.update_message)
        case _:
            return _plan_removal(tx, run, command.remove_message, waiting or {})


def _plan_update(tx: Transaction, run: RunRow, command: UpdateMessage) -> EditPlan:
    message_edits.check_content(command.content)
    message = message_edits.find_editable(tx, run, command.message_id)
    if not command.regenerate:
        return EditPlan(Edit(rewrite=message.path, content=command.content))
    if kind_of(message) is not MessageKind.PROMPT:
        raise invalid("regenerate", f"{command.message_id} is not a prompt: only a prompt can be sent again.")
    return EditPlan(Edit(truncate=message.path), _resend_of(tx, run, message, command.content))


def _plan_removal(tx: Transaction, run: RunRow, command: RemoveMessage, waiting: Mapping[str, str]) -> EditPlan:
    message = message_edits.find_editable(tx, run, command.message_id)
    if not command.regenerate:
        return EditPlan(Edit(remove=message.path))
    return _plan_resend(tx, run, message_edits.prompt_before(tx.connection, run, message.position), waiting)


def _plan_truncation(tx: Transaction, run: RunRow, command: TruncateMessages | RetryFromIndex) -> Edit | None:
    message = message_edits.message_at(tx.connection, run, command.from_index, command.expected_revision)
    return Edit(truncate=message.path) if message else None


def _plan_restoration(tx: Transaction, run: RunRow, actor: str, command: SessionCommand) -> Edit:
    if command.HasField("restore_from_trajectory"):
        staged_id = command.restore_from_trajectory.staged_id
        get_staged(tx, run, actor, staged_id)
        return Edit(staged=staged_id)
    turn = command.rewind_to_turn.turn
    get_turn_home(tx.connection, run, turn)
    return Edit(restore=turn)


def _plan_retry(tx: Transaction, run: RunRow, command: RetryFromIndex) -> EditPlan:
    edit = _plan_truncation(tx, run, command)
    if command.message.priority:
        raise invalid("message.priority", "A message that takes the place of others waits for its turn: no priority.")
    content = content_of(command.message)
    return EditPlan(edit, Resend(content.text, settings_of(command.message, tx, run, content.images)))


def _plan_resend(tx: Transaction, run: RunRow, prompt: Entry | None, waiting: Mapping[str, str]) -> EditPlan:
    if prompt is None:
        raise invalid("regenerate", f"{run.run.run} has no prompt that could be sent again.")
    whole = find_entry(tx.connection, run, prompt.path)
    assert whole, "it was found"
    text = waiting.get(prompt.path, whole.body)
    return EditPlan(Edit(truncate=prompt.path), _resend_of(tx, run, prompt, text))


def _resend_of(tx: Transaction, run: RunRow, prompt: Entry, text: str) -> Resend:
    """A prompt with what was asked of its loop; an inherited loop is known by its prompt alone."""
    attributes, text = prompt.attributes, _strip_appended(prompt, text)
    sequence = attributes.get("loop")
    loop = loop_rows.find_loop(tx.connection, run.id, sequence) if isinstance(sequence, int) else None
    if loop is None:
        mode = Mode[str(attributes.get("mode", "act")).upper()]
        return Resend(text, replace(latest_asked(tx, run), mode=mode, budget=None))
    return Resend(text, asked_of(run, loop))


def _strip_appended(prompt: Entry, text: str) -> str:
    """What of the text of a prompt its author wrote: the rest is appended again, and an edit may have kept it."""
    return text.removesuffix(str(prompt.attributes.get(APPENDED, "")))


def _plan_regeneration(tx: Transaction, run: RunRow, waiting: Mapping[str, str] | None) -> EditPlan:
    """The latest prompt of a user; where it waits, that of the last loop in the queue, once that has ended."""
    if waiting is None:
        return _plan_resend(tx, run, message_edits.prompt_before(tx.connection, run), {})
    loop = latest_of_user(tx.connection, run)
    if loop is None:
        raise invalid("regenerate", f"{run.run.run} has no prompt that could be sent again.")
    prompt = find_entry(tx.connection, run, f"prompt://{loop.first_turn}") if loop.first_turn else None
    text = _strip_appended(prompt, waiting.get(prompt.path, prompt.body)) if prompt else loop.prompt
    return EditPlan(Edit(truncate_loop=loop.sequence), Resend(text, asked_of(run, loop)))


def apply_edit(tx: Transaction, rules: StoreRules, run: RunRow, actor: str, edit: Edit) -> RewindResult:
    """Apply an edit. Raises ENTRY_NOT_FOUND, TURN_NOT_FOUND."""
    done = _edit_messages(tx, rules, run, actor, edit)
    # The run's row gets the revision too: a removed message has no entry that would show clients a new revision.
    row = bump_revision(tx, get_run(tx.connection, run.project, run.alias))
    write_run(tx, row)
    return done


def _edit_messages(tx: Transaction, rules: StoreRules, run: RunRow, actor: str, edit: Edit) -> RewindResult:
    if edit.rewrite:
        message_edits.update_message(tx, rules, run, actor, edit.rewrite, edit.content)
        return RewindResult()
    if edit.remove:
        return RewindResult(closed=message_edits.remove_message(tx, rules, run, actor, edit.remove))
    if edit.restore:
        return message_edits.rewind_to_turn(tx, rules, run, actor, edit.restore)
    if edit.staged:
        return message_edits.restore_document(tx, rules, run, actor, edit.staged)
    loop = loop_rows.find_loop(tx.connection, run.id, edit.truncate_loop) if edit.truncate_loop else None
    path = edit.truncate or f"prompt://{loop.first_turn if loop else 0}"
    return message_edits.rewind_before_message(tx, rules, run, actor, message_edits.find_message(tx, run, path))
