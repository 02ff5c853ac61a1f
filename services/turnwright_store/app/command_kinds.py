"""The kind of a command, and its preview, by which lists of the queue name it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import asdict

from turnwright_core.chat.message import Text
from turnwright_core.session_queue import index_preview, truncate_preview
from turnwright_store.app.session_commands import (
    AbortSession,
    BranchFromChat,
    DecideTools,
    IdeToolResult,
    Regenerate,
    RemoveMessage,
    RestoreFromTrajectory,
    SessionCommand,
    SetDraft,
    SetParams,
    TruncateMessages,
    UpdateMessage,
    UserMessage,
)
from turnwright_store.domain.session_gates import CommandKind


def kind_of(command: SessionCommand) -> CommandKind:
    """Its name in the contract and in the table of gates."""
    match command:
        case DecideTools(accept=accept):
            return CommandKind.APPROVE_TOOLS if accept else CommandKind.REJECT_TOOLS
        case SetDraft(text=text):
            return CommandKind.CLEAR_DRAFT if text is None else CommandKind.SET_DRAFT
        case TruncateMessages(message=message):
            return CommandKind.RETRY_FROM_INDEX if message else CommandKind.TRUNCATE_MESSAGES
        case _:
            return _KINDS[type(command)]


_KINDS: Final = {
    UserMessage: CommandKind.USER_MESSAGE,
    SetParams: CommandKind.SET_PARAMS,
    AbortSession: CommandKind.ABORT,
    BranchFromChat: CommandKind.BRANCH_FROM_CHAT,
    IdeToolResult: CommandKind.IDE_TOOL_RESULT,
    UpdateMessage: CommandKind.UPDATE_MESSAGE,
    RemoveMessage: CommandKind.REMOVE_MESSAGE,
    Regenerate: CommandKind.REGENERATE,
    RestoreFromTrajectory: CommandKind.RESTORE_FROM_TRAJECTORY,
}


def preview_of(command: SessionCommand) -> str:
    return truncate_preview(_ABOUT[type(command)](command))


def _changes(command: SetParams) -> str:
    return ", ".join(f"{name}={value}" for name, value in asdict(command.patch).items() if value is not None)


def _text(message: UserMessage) -> str:
    return "\n\n".join(part.text for part in message.parts if isinstance(part, Text))


_ABOUT: Final[Mapping[type, Callable[[Any], str]]] = {
    UserMessage: _text,
    SetParams: _changes,
    AbortSession: lambda _: "",
    DecideTools: lambda command: f"{len(command.calls)} decisions",
    BranchFromChat: lambda command: command.source,
    IdeToolResult: lambda command: command.call,
    UpdateMessage: lambda command: command.path,
    RemoveMessage: lambda command: command.path,
    TruncateMessages: lambda command: index_preview(command.index, _text(command.message) if command.message else ""),
    Regenerate: lambda _: "",
    RestoreFromTrajectory: lambda command: f"turn {command.turn}",
    SetDraft: lambda command: command.text or "",
}
