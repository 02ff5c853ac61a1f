"""The commands of a session as values; what they mean stands in types/v1/session_command.proto."""

from __future__ import annotations

from msgspec import Struct

from turnwright_core.chat.message import Part
from turnwright_core.runs import LoopSettings
from turnwright_store.app.control import SettingsPatch


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


class BranchFromChat(Struct, frozen=True):
    """A new run as a branch of another one."""

    source: str


class SetDraft(Struct, frozen=True):
    """A draft; None: it is removed."""

    text: str | None


SessionCommand = UserMessage | SetParams | AbortSession | DecideTools | BranchFromChat | SetDraft
