"""The commands of a session as values; see types/v1/session_command.proto."""

from __future__ import annotations

from msgspec import Struct

from turnwright_core.chat.message import Part
from turnwright_core.runs import LoopSettings
from turnwright_store.domain.settings_patch import SettingsPatch


class UserMessage(Struct, frozen=True):
    """A message from the user; a part that is None is of no known kind."""

    parts: tuple[Part | None, ...]
    context_files: tuple[str, ...] = ()
    settings: LoopSettings | None = None
    priority: bool = False


class SetParams(Struct, frozen=True):
    """Changes of settings."""

    patch: SettingsPatch


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
