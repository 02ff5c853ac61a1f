"""What commands of a session say: their kinds, contents, and previews (see types/v1/session_command.proto)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from turnwright.types.v1 import message_pb2, session_command_pb2, settings_pb2
from turnwright_values.types import RunSettingsPatch

from turnwright_core.chat.message import Part
from turnwright_core.checks import invalid
from turnwright_core.session import index_preview, truncate_preview
from turnwright_core.wire.codec import codec
from turnwright_core.wire.messages import part_from_pb
from turnwright_store.domain.session_gates import CommandKind
from turnwright_store.domain.user_content import UserContent, user_content

patch_of = codec(RunSettingsPatch, settings_pb2.RunSettingsPatch)[1]


def kind_of(command: session_command_pb2.SessionCommand) -> CommandKind:
    """Raises INVALID_FIELD for one of no known kind."""
    kind = command.WhichOneof("kind")
    if kind is None:
        raise invalid("command", "command has no kind that this version knows.")
    return CommandKind(kind)


def content_of(message: session_command_pb2.UserMessage, command_id: str = "") -> UserContent:
    """The content of a message of the user, which brings images along under this id. Raises as `user_content`."""
    return user_content(list(map(_part, message.parts)), message.context_files, command_id)


def _part(part: message_pb2.Part) -> Part | None:
    return part_from_pb(part) if part.WhichOneof("part") else None


def preview_of(command: session_command_pb2.SessionCommand) -> str:
    kind = kind_of(command)
    return truncate_preview(_ABOUT[kind](getattr(command, kind.value)) if kind in _ABOUT else "")


def _changes(command: session_command_pb2.SetParams) -> str:
    patch = patch_of(command.patch)
    values = ((name, getattr(patch, name)) for name in patch.__struct_fields__)
    return ", ".join(f"{name}={value}" for name, value in values if value is not None)


def _text(message: session_command_pb2.UserMessage) -> str:
    return "\n\n".join(part.text for part in message.parts if part.HasField("text"))


def _decisions(command: session_command_pb2.ApproveTools | session_command_pb2.RejectTools) -> str:
    return f"{len(command.calls)} decisions"


_ABOUT: Final[Mapping[CommandKind, Callable[[Any], str]]] = {
    CommandKind.USER_MESSAGE: _text,
    CommandKind.SET_PARAMS: _changes,
    CommandKind.APPROVE_TOOLS: _decisions,
    CommandKind.REJECT_TOOLS: _decisions,
    CommandKind.BRANCH_FROM_CHAT: lambda command: command.source,
    CommandKind.SET_DRAFT: lambda command: command.text,
    CommandKind.IDE_TOOL_RESULT: lambda command: command.call,
    CommandKind.UPDATE_MESSAGE: lambda command: command.message_id,
    CommandKind.REMOVE_MESSAGE: lambda command: command.message_id,
    CommandKind.TRUNCATE_MESSAGES: lambda command: index_preview(command.from_index),
    CommandKind.RETRY_FROM_INDEX: lambda command: index_preview(command.from_index, _text(command.message)),
    CommandKind.REWIND_TO_TURN: lambda command: f"turn {command.turn}",
    CommandKind.RESTORE_FROM_TRAJECTORY: lambda command: command.staged_id,
}
"""What a preview says, by kind; the others say nothing."""
