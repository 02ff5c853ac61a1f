"""Native tool calls out of fragments, whatever the vendor leaves out or says twice.

Calls accumulate by index, be it a number or the text of one; id and name replace when they say something; arguments
append. The quirks: no index at all (Mistral), one index for every call (Gemini's compatible face), id and name on each
fragment, whole calls sent again, `{}` as a placeholder first, objects instead of JSON text. Google's `extra_content`,
which it wants back, is the call's signature: the object as JSON.
Snapshots are made when the arguments have grown by an eighth, so that a long call costs linear time.
Source: RD02; research/wire "where a correct client must differ" 1, 4, 5; cases refact/tool_call_delta.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from turnwright_core.chat.deltas import SetToolCalls
from turnwright_core.chat.message import ToolCall
from turnwright_core.json_text import json_object
from turnwright_core.limits import REPLY_CALLS_MAX
from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.surrogates import join_surrogates

CALLS_MAX: Final = REPLY_CALLS_MAX + 1
"""Maximum number of calls in one message; higher indexes are ignored. One more than are run, to detect an excess."""

ARGUMENTS_CHARS_MAX: Final = 3 * 1024 * 1024
"""Maximum total length of the arguments in a message, in code points: they are passed on in one piece."""

_GROWTH: Final = 8
_IDS_MAX: Final = 8 * CALLS_MAX


class _Call(Struct):
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    chars: int = 0
    block: int | None = None
    signature: str = ""

    def arguments(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""

    def looks_complete(self) -> bool:
        return bool(self.parts) and self.parts[-1].rstrip().endswith("}")

    def add(self, text: str) -> None:
        """Append a fragment, unless it repeats everything or replaces a placeholder."""
        if not text:
            return
        again = len(text) >= self.chars > 1 and self.looks_complete() and text.startswith(self.arguments())
        if again and json_object(self.arguments()) is None:
            again = False
        if again or (self.chars == 2 and self.arguments() == "{}"):
            self.parts, self.chars = [], 0
        self.parts.append(text)
        self.chars += len(text)


class ToolCallFold:
    """Folds the `tool_calls` of deltas into the list of calls so far."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}
        self._slot_of_index: dict[int, int] = {}
        self._slot_of_id: dict[str, int] = {}
        self._last = 0
        self._fresh_chars = 0
        self._sent_chars = 0
        self._renamed = False
        self.chars = 0
        """Characters received for calls: names, and all arguments."""

    def feed(self, fragments: Any, *, are_whole: bool = False) -> SetToolCalls | None:
        """Add one delta's fragments; returns the calls so far if they have changed enough to be passed on.

        With `are_whole`, calls are identified by their position in the list: some have neither index nor id.
        """
        for index, fragment in enumerate(fragments if isinstance(fragments, list) else ()):
            if isinstance(fragment, dict):
                self._add(fragment, index if are_whole else None)
        return self._snapshot() if self._is_due() else None

    def mark(self, index: int, block: int | None, signature: str = "") -> None:
        """Set the position of a call among all blocks, and its vendor's data to send back; `feed` emits it."""
        if 0 <= index < CALLS_MAX:
            call = self._calls.setdefault(index, _Call())
            call.block, call.signature = block, signature

    def end(self) -> SetToolCalls | None:
        """The final calls, if there are any; a call without arguments gets `{}`."""
        for call in self._calls.values():
            if not call.parts:
                call.parts = ["{}"]
        return self._snapshot() if any(call.name for call in self._calls.values()) else None

    def _add(self, fragment: Mapping[str, Any], place: int | None) -> None:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name = text_of(fragment.get("id")), text_of(function.get("name"))
        index = parse_index(fragment.get("index"))
        slot = self._slot(place if index is None else index, call_id, name)
        if not 0 <= slot < CALLS_MAX:
            return
        call = self._calls.setdefault(slot, _Call())
        self._last = slot
        # Passed on at once when a call gets its name; a server that changes it repeatedly is passed on with the rest.
        is_new = bool(name) and not call.name
        self._renamed |= is_new
        call.id, call.name = call_id or call.id, name or call.name
        if isinstance(signed := fragment.get("extra_content"), dict):
            call.signature = json.dumps(signed, separators=(",", ":"))
        if call_id and len(self._slot_of_id) < _IDS_MAX:
            self._slot_of_id.setdefault(call_id, slot)
        arguments = _arguments(function.get("arguments"))
        call.add(arguments)
        self._fresh_chars += len(arguments)
        self.chars += len(arguments) + is_new
        if sum(one.chars for one in self._calls.values()) > ARGUMENTS_CHARS_MAX:
            raise failed(FailureClass.PROTOCOL, f"the arguments of calls are over {ARGUMENTS_CHARS_MAX} characters")

    def _slot(self, index: int | None, call_id: str, name: str) -> int:
        """The call that a fragment belongs to: by index; without one by id; without both, the last one."""
        if index is None:
            if not call_id:
                return self._last
            return self._slot_of_id.get(call_id, self._next())
        if not 0 <= index < CALLS_MAX:
            return index
        slot = self._slot_of_index.setdefault(index, index)
        call = self._calls.get(slot)
        if call and name and call_id and call.id and call_id != call.id and call.looks_complete():
            slot = self._slot_of_index[index] = self._slot_of_id.get(call_id, self._next())
        return slot

    def _next(self) -> int:
        return max(self._calls, default=-1) + 1

    def _is_due(self) -> bool:
        return self._renamed or (self._fresh_chars > 0 and self._fresh_chars * _GROWTH >= self._sent_chars)

    def _snapshot(self) -> SetToolCalls | None:
        self._sent_chars += self._fresh_chars
        self._fresh_chars, self._renamed = 0, False
        calls = tuple(
            ToolCall(
                join_surrogates(call.name),
                join_surrogates(call.arguments()),
                slot,
                join_surrogates(call.id),
                signature=join_surrogates(call.signature),
                block=call.block,
            )
            for slot, call in sorted(self._calls.items())
            if call.name
        )
        return SetToolCalls(calls) if calls else None


def parse_index(value: Any) -> int | None:
    """A list index as servers write it: a number, or the text of one; None for anything else."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(value: Any) -> str:
    """The text; empty for anything else."""
    return value if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
