"""What plugins that edit prompts are given: the prompt of one model call with the five verbs, and what it is for.

Source: rows OM17-OM26, OM35, OM36; architecture 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import RequestKind, TurnRequest

from turnwright_assembler.sections.plugin_sections import PluginFunction
from turnwright_core.chat import prompt_edits
from turnwright_core.chat.prompt_edits import (
    Parts,
    PromptEdit,
    PromptMessage,
    apply_prompt_edits,
    check_edits,
    check_kept_images,
)
from turnwright_core.errors import TurnwrightError, fault

KINDS: Final = {kind.name.lower(): kind for kind in RequestKind if kind}
"""The purposes of model calls, by the words that plugins use."""


class PromptContext(Struct, frozen=True):
    """What the prompt is for."""

    project: str
    run: str
    turn: int
    loop: int
    request: TurnRequest
    """The settings of the turn."""

    @property
    def agent(self) -> str | None:
        """The run's persona; None: the built-in one."""
        return self.request.persona

    @property
    def model(self) -> str:
        """`vendor/model` that the prompt is sent to."""
        return self.request.vendor_model

    @property
    def kind(self) -> str:
        """The purpose of the call: `primary`, `compaction` or `title`."""
        return (self.request.kind or RequestKind.PRIMARY).name.lower()


class PromptEditor:
    """The prompt of one model call, for the plugin that is being called.

    Each verb takes effect at once, and raises TurnwrightError if it cannot: then the call fails, even if the plugin
    goes on.
    """

    def __init__(self, plugin: str, messages: Sequence[PromptMessage], before: Sequence[PromptEdit]) -> None:
        """Edit these messages, to which the edits `before` have been applied."""
        self._plugin = plugin
        self._messages = tuple(messages)
        self._edits = tuple(before)
        self._failure: TurnwrightError | None = None
        self._is_open = True

    @property
    def messages(self) -> tuple[PromptMessage, ...]:
        """The messages in order, without the system message, as edited so far. Nothing in them can be changed."""
        return self._messages

    def append(self, role: str, parts: Parts) -> None:
        """Add a message of the `user` or the `assistant` at the end."""
        self._edit(lambda: prompt_edits.append(role, parts))

    def prepend(self, role: str, parts: Parts) -> None:
        """Add a message at the beginning."""
        self._edit(lambda: prompt_edits.prepend(role, parts))

    def append_to(self, target: str, parts: Parts) -> None:
        """Add parts to the message `last-user` or `last-assistant`."""
        self._edit(lambda: prompt_edits.append_to(target, parts))

    def insert_after(self, message_id: str, role: str, parts: Parts) -> None:
        """Add a message directly after the one with this id."""
        self._edit(lambda: prompt_edits.insert_after(message_id, role, parts))

    def insert_before(self, message_id: str, role: str, parts: Parts) -> None:
        """Add a message directly before the one with this id."""
        self._edit(lambda: prompt_edits.insert_before(message_id, role, parts))

    def _edit(self, make: Callable[[], PromptEdit]) -> None:
        if not self._is_open:
            raise RuntimeError("the prompt is no longer edited: the plugin has returned, or it was too late")
        try:
            edit = replace(make(), plugin=self._plugin)
            edits = (*self._edits, edit)
            check_edits(edits)
            check_kept_images([edit])
            self._messages = tuple(apply_prompt_edits(self._messages, [edit], first=len(self._edits)))
        except TurnwrightError as error:
            whose = "" if self._plugin in error.message else f"The plugin {self._plugin}: "
            named = fault(error.reason, f"{whose}{error.message}", **{**error.metadata, "plugin": self._plugin})
            self._failure = self._failure or named
            raise named from error
        self._edits = edits

    def close(self) -> tuple[tuple[PromptMessage, ...], tuple[PromptEdit, ...]]:
        """The messages and all edits; nothing is edited any more. Raises the error of an edit that failed."""
        self._is_open = False
        if self._failure:
            raise self._failure
        return self._messages, self._edits


PromptFunction = Callable[[PromptEditor, PromptContext], object]


class PromptPlugin(PluginFunction, frozen=True, kw_only=True):
    """A function of a plugin, and the kinds of model calls that it is called for."""

    kinds: frozenset[RequestKind]
