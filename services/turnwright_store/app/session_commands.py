"""The commands of a session as values (see types/v1/session_command.proto), with their kinds and previews for lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict
from turnwright_values.types import LoopSettings, RunSettingsPatch

from turnwright_core.chat.message import Part, Text
from turnwright_core.session_queue import index_preview, truncate_preview
from turnwright_store.domain.session_gates import CommandKind


class UserMessage(Struct, frozen=True):
    """A message from the user; a part that is None is of no known kind."""

    parts: tuple[Part | None, ...]
    context_files: tuple[str, ...] = ()
    settings: LoopSettings | None = None
    priority: bool = False


class SetParams(Struct, frozen=True):
    """Changes of settings."""

    patch: RunSettingsPatch


class AbortSession(Struct, frozen=True):
    """The end of the active loop."""


class DecideTools(Struct, frozen=True):
    """Decisions on calls: ApproveTools and RejectTools. `comment` is a reason or an answer."""

    accept: bool
    calls: tuple[str, ...]
    comment: str = ""
    contents: tuple[tuple[str, str], ...] = ()
    for_run: bool = False
    """Whether the decision also holds for later effects of the same tools."""


class BranchFromChat(Struct, frozen=True):
    """A new run as a branch of another one."""

    source: str
    up_to: str = ""


class UpdateMessage(Struct, frozen=True):
    """Another content of a message."""

    path: str
    content: str
    regenerate: bool = False


class RemoveMessage(Struct, frozen=True):
    """A message less."""

    path: str
    regenerate: bool = False


class TruncateMessages(Struct, frozen=True):
    """The messages before a place; with a message, which is then sent (RetryFromIndex)."""

    index: int
    expected_revision: int
    message: UserMessage | None = None


class Regenerate(Struct, frozen=True):
    """The latest prompt once more."""


class RestoreFromTrajectory(Struct, frozen=True):
    """Restore the view at the end of a turn."""

    turn: int


class IdeToolResult(Struct, frozen=True):
    """The result of a client tool."""

    call: str
    content: str
    failed: bool = False


class SetDraft(Struct, frozen=True):
    """A draft; None: it is removed."""

    text: str | None


EditCommand = UpdateMessage | RemoveMessage | TruncateMessages | Regenerate | RestoreFromTrajectory
SessionCommand = (
    UserMessage | SetParams | AbortSession | DecideTools | BranchFromChat | SetDraft | IdeToolResult | EditCommand
)


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
