"""Native tool calls out of fragments, whatever the vendor leaves out or says twice.

A fragment goes to the call of its id, without one to that of its index, else to the latest. It begins another call if
its id is new and that call has one, if it brings another name, or if that call's arguments are a complete object and it
brings arguments of its own: an index alone tells no calls apart, since some servers use one for all. A new id begins
nothing where arguments of a named call go on without a name: some servers draw an id for each fragment. Calls with
equal id, name and arguments are one. Arguments append; a `{}` that more of the same call follow was a placeholder.
Google's `extra_content`, which it wants back, is the call's signature: the object as JSON.
Snapshots are made when the arguments have grown by an eighth, so that a long call costs linear time.
Source: RD02, C60; research/wire "where a correct client must differ" 1, 4, 5; cases refact/tool_call_delta.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from typing import Final

from msgspec import Struct, field
from turnwright_values.replies import ToolCall

from turnwright_core.chat.deltas import SetToolCalls
from turnwright_core.json_text import BRIEF_CHARS_MAX, JsonMapping, json_object
from turnwright_core.limits import CALL_ID_CHARS_MAX, CALL_NAME_CHARS_MAX, REPLY_CALLS_MAX
from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.surrogates import join_surrogates

CALLS_MAX: Final = REPLY_CALLS_MAX + 1
"""Maximum number of calls in one message. One more than are run, to detect an excess.

Fragments with another index are ignored."""

KEY_CHARS_MAX: Final = 256
"""Longest text by which a call is told from others, in code points."""

ARGUMENTS_CHARS_MAX: Final = 3 * 1024 * 1024
"""Maximum total length of the arguments in a message, in code points: they are passed on in one piece."""

_GROWTH: Final = 8
_IDS_MAX: Final = 8 * CALLS_MAX

_NO_ARGUMENTS: Final = "{}"

_ESCAPE: Final = "\\"
_STRUCTURE: Final = re.compile(r'\\(?:.|\Z)|["{}\[\]]', re.DOTALL)


class _Call(Struct, eq=False):
    slot: int
    id: str = ""
    name: str = ""
    parts: list[str] = field(default_factory=list)
    block: int | None = None
    signature: str = ""
    is_repeated: bool = False
    """Its id or name came again behind its complete arguments."""
    is_indexed: bool = False
    depth: int = 0
    in_string: bool = False
    is_escaped: bool = False
    is_broken: bool = False
    """Its brackets are closed, and it is no object."""

    def arguments(self) -> str:
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""

    def add(self, text: str) -> None:
        self.parts.append(text)
        mark = ""
        for found in _STRUCTURE.finditer(text, int(self.is_escaped)):
            mark = found[0]
            if mark == '"':
                self.in_string = not self.in_string
            elif mark[0] != _ESCAPE and not self.in_string:
                self.depth += 1 if mark in "{[" else -1
        self.is_escaped = mark == _ESCAPE

    def is_object(self) -> bool:
        """Whether the arguments are a complete object. Parsed only once its brackets are closed, and not if long."""
        if not self.parts or self.depth or self.in_string or self.is_broken:
            return False
        arguments = self.arguments()
        if len(arguments) > BRIEF_CHARS_MAX:
            return arguments.lstrip().startswith("{")
        self.is_broken = json_object(arguments) is None
        return not self.is_broken


class ToolCallFold:
    """Folds the `tool_calls` of deltas into the list of calls so far."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_key: dict[str, _Call] = {}
        """By a short form of their ids."""
        self._last: _Call | None = None
        self._fresh_chars = 0
        self._sent_chars = 0
        self._total_chars = 0
        self._renamed = False
        self.chars = 0
        """Characters received for calls: names, and all arguments."""

    def feed(
        self, fragments: object, *, are_whole: bool = False, block: int | None = None, signature: str = ""
    ) -> SetToolCalls | None:
        """Add one delta's fragments; returns the calls so far if they have changed enough to be passed on.

        With `are_whole`, each is a call. `block` is the position of a call among all blocks, `signature` its vendor's
        data to send back.
        """
        for fragment in fragments if isinstance(fragments, list) else [fragments]:
            if isinstance(fragment, dict):
                self._add(fragment, block, signature, is_whole=are_whole)
        return self._snapshot() if self._is_due() else None

    def end(self) -> SetToolCalls | None:
        """The final calls, if there are any; a call without arguments gets `{}`."""
        distinct: dict[tuple[str, str], list[_Call]] = {}
        for call in self._in_order():
            call.parts = call.parts or [_NO_ARGUMENTS]
            same = distinct.setdefault((call.name, _canonical(call.arguments())), [])
            if not any(_may_be(one, call.id) for one in same):
                same.append(call)
        self._calls = [*chain.from_iterable(distinct.values())]
        return self._snapshot()

    def _add(self, fragment: JsonMapping, block: int | None, signature: str, *, is_whole: bool) -> None:
        function = fragment.get("function")
        function = function if isinstance(function, dict) else fragment
        call_id, name = id_of(fragment.get("id")), text_of(function.get("name"))[:CALL_NAME_CHARS_MAX]
        arguments, index = arguments_of(function.get("arguments")), parse_index(fragment.get("index"))
        if is_whole:
            index = None
        elif index is not None and not 0 <= index < CALLS_MAX:
            return
        call = None if is_whole else self._call_of(call_id, index, name)
        self.chars += len(arguments)
        if call is None or self._begins(call, call_id, name, arguments):
            if call and call.is_repeated and not name:
                call_id, name = call_id or call.id, call.name
            call = self._begun(index, call_id, name, arguments)
            if call is None:
                return
        elif not arguments and (call_id or name):
            call.is_repeated = bool(call.name) and call.is_object()
        self._note(call, index, call_id)
        # Passed on at once when a call gets its name.
        if name and not call.name:
            self._renamed = True
            self.chars += call in self._calls
        call.id, call.name = call.id or call_id, call.name or name
        call.block = block if call.block is None else call.block
        call.signature = signature or call.signature
        if isinstance(signed := fragment.get("extra_content"), dict):
            call.signature = json.dumps(signed, separators=(",", ":"))
        self._add_arguments(call, arguments)

    def _add_arguments(self, call: _Call, arguments: str) -> None:
        if _is_own(arguments) and call.parts == [_NO_ARGUMENTS]:
            call.parts = []
        if arguments:
            call.add(arguments)
        self._fresh_chars += len(arguments)
        self._total_chars += len(arguments)
        if self._total_chars > ARGUMENTS_CHARS_MAX:
            raise failed(FailureClass.PROTOCOL, f"the arguments of calls are over {ARGUMENTS_CHARS_MAX} characters")

    def _call_of(self, call_id: str, index: int | None, name: str) -> _Call | None:
        """The call that a fragment belongs to, unless it begins another."""
        of_index = None if index is None else self._by_index.get(index)
        if of_id := self._by_key.get(key_of(call_id)):
            return of_index if of_index and of_index.id == call_id else of_id
        if index is None or of_index:
            return of_index or self._last
        # An index that is new begins a call, unless it comes late: to a call without one, or to nothing that names one.
        is_late = self._last is not None and not (self._last.is_indexed and (call_id or name))
        return self._last if is_late else None

    def _begins(self, call: _Call, call_id: str, name: str, arguments: str) -> bool:
        """Whether a fragment for this call is another call's first."""
        goes_on = arguments and not name and call.name and not call.is_object()
        if call_id and call.id and key_of(call_id) not in self._by_key and not goes_on:
            return True
        if name and call.name and name != call.name:
            return True
        if not _is_own(arguments) or not call.is_object():
            return False
        is_same = call_id == call.id if call_id else not (name or call.is_repeated)
        return not (is_same and call.arguments() == _NO_ARGUMENTS)

    def _begun(self, index: int | None, call_id: str, name: str, arguments: str) -> _Call | None:
        """The call that a fragment begins. None if it is an earlier one, sent again."""
        if arguments and name:
            for call in self._calls:
                if _may_be(call, call_id) and (call.name, call.arguments()) == (name, arguments):
                    self._note(call, index, call_id)
                    return None
        taken = {call.slot for call in self._calls}
        slot = index if index is not None and index not in taken else max(taken, default=-1) + 1
        call = _Call(slot, call_id)
        if len(self._calls) < CALLS_MAX:
            self._calls.append(call)
        return call

    def _note(self, call: _Call, index: int | None, call_id: str) -> None:
        """Remember under which names the fragments of a call come."""
        self._last = call
        if index is not None:
            self._by_index[index] = call
            call.is_indexed = True
        if (key := key_of(call_id)) and (len(self._by_key) < _IDS_MAX or key in self._by_key):
            self._by_key[key] = call

    def _is_due(self) -> bool:
        return self._renamed or (self._fresh_chars > 0 and self._fresh_chars * _GROWTH >= self._sent_chars)

    def _in_order(self) -> list[_Call]:
        return sorted((call for call in self._calls if call.name), key=attrgetter("slot"))

    def _snapshot(self) -> SetToolCalls | None:
        self._sent_chars += self._fresh_chars
        self._fresh_chars, self._renamed = 0, False
        calls = tuple(
            ToolCall(
                join_surrogates(call.name),
                join_surrogates(call.arguments()),
                call.slot,
                join_surrogates(call.id),
                signature=join_surrogates(call.signature),
                block=call.block,
            )
            for call in self._in_order()
        )
        return SetToolCalls(calls) if calls else None


def _may_be(call: _Call, call_id: str) -> bool:
    """Whether an equal call with this id is the same: a server may leave an id out."""
    return not (call.id and call_id) or call.id == call_id


def _is_own(arguments: str) -> bool:
    """Whether a fragment's arguments may be the beginning of a call's."""
    return arguments.lstrip().startswith("{")


def _canonical(arguments: str) -> str:
    """The arguments in one spelling, unless they are long."""
    found = json_object(arguments) if len(arguments) <= BRIEF_CHARS_MAX else None
    return arguments if found is None else json.dumps(found, sort_keys=True)


def id_of(value: object) -> str:
    """The id of a call: a text, or a number. Servers without one send an empty text, or the word null."""
    call_id = str(value) if isinstance(value, int) and not isinstance(value, bool) else text_of(value)
    return "" if call_id == "null" else _shortened(call_id, CALL_ID_CHARS_MAX)


def key_of(call_id: str) -> str:
    """A short form of an id, for lookups."""
    return _shortened(call_id, KEY_CHARS_MAX)


def _shortened(text: str, chars_max: int) -> str:
    """The text; a longer one is shortened so that no two become the same."""
    if len(text) <= chars_max:
        return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return text[: chars_max - len(digest)] + digest


def parse_index(value: object) -> int | None:
    """A list index as servers write it: a number, or the text of one; None for anything else."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(value: object) -> str:
    """The text; empty for anything else."""
    return value if isinstance(value, str) else ""


def arguments_of(value: object) -> str:
    """The arguments of a call as text, or a piece of it; some servers send the object itself."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
