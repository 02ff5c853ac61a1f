"""Fold from the typed events of OpenAI's Responses API to deltas.

Events identify their item by `output_index`, `item_id`, `call_id`, or nothing, and no field is reliable: llama.cpp
sends no index, some proxies one index for all, GitHub Copilot another id in each event. So each event looks for its
item:

    by an id          if it names one item
    by its index      if that item is of the event's kind and still open
    by its order      else: the latest open item of the kind

An item that is complete is also matched by what its pieces have said, and so is the output that the last event lists,
whichever of the four ends a reply has:
deltas are repeated in `done` events, in items and in the response, and each is emitted once. What was listed alone is
emitted there. Parts of an item are told apart in the same way. A text that stands beside the items
(`response.output_text`) is taken where the items have none.
Source: research/wire 2.1, "where a correct client must differ" 7, 8; rows RD01-RD05.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from itertools import chain
from typing import Final

from msgspec import Struct, field
from turnwright_values.replies import ServerBlock, ThinkingBlock

from turnwright_core.chat.deltas import AddServerBlock, Delta, SetThinkingBlocks
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.limits import CALL_NAME_CHARS_MAX
from turnwright_provider.domain.error_body import truncated_json
from turnwright_provider.domain.keyed_texts import KEYS_MAX, KeyedTexts, words_of
from turnwright_provider.domain.surrogates import join_surrogates
from turnwright_provider.domain.tool_calls import arguments_of, id_of, key_of, parse_index, text_of
from turnwright_provider.domain.wires.json_fold import (
    JsonFold,
    compact_json,
    error_in_stream,
    objects,
    reply_in,
)

# What the events and items of OpenAI's Responses API say, in any of the forms in which servers write them.

_TEXTS: Final = {"output_text": "text", "text": "text", "refusal": "refusal"}
"""Part of a message -> the field with its text."""

_WHOLE: Final = ("text", "refusal", "arguments")
"""Where an event has a text that is complete."""


def ids_of(event: JsonMapping) -> list[str]:
    """The ids in an event that may name its item, in short form."""
    item = event.get("item")
    named = item if isinstance(item, dict) else {}
    ids = (event.get("item_id"), event.get("call_id"), *(named.get(name) for name in ("id", "item_id", "call_id")))
    return [key_of(one) for one in map(id_of, ids) if one]


def whole_text(event: JsonMapping) -> str:
    """The complete text of an event, or of the part of an item in it."""
    part = event.get("part")
    written = part if isinstance(part, dict) else event
    return next((text for name in _WHOLE if (text := arguments_of(written.get(name)))), "")


def texts_in(written: JsonMapping) -> dict[str, list[str]]:
    """The texts of a complete item, in their parts."""
    match written.get("type"):
        case "message":
            if isinstance(content := written.get("content"), str):
                return {"text": [content]}
            parts = objects(content)
            return {"text": [text_of(part.get(_TEXTS.get(text_of(part.get("type")), ""))) for part in parts]}
        case "reasoning":
            return {
                member: [text_of(part.get("text")) for part in objects(written.get(member))]
                for member in ("summary", "content")
            }
        case "function_call":
            return {"arguments": [arguments_of(written.get("arguments"))]}
        case _:
            return {}


ITEMS_MAX: Final = 1000
"""Most items of one reply; others are ignored."""

BLOCK_CHARS_MAX: Final = 3 * 1024 * 1024
"""Longest block that can go back, in characters of JSON: it is handed on in one piece."""

_MESSAGE: Final = "message"
_REASONING: Final = "reasoning"
_CALL: Final = "function_call"

_KINDS: Final = {
    "output_text": (_MESSAGE, "text"),
    "refusal": (_MESSAGE, "text"),
    "output_text.annotation": (_MESSAGE, ""),
    "reasoning_summary_text": (_REASONING, "summary"),
    "reasoning_text": (_REASONING, "content"),
    "function_call_arguments": (_CALL, "arguments"),
}
"""What an event is about -> the type of its item, and the text in that."""

_PART_KINDS: Final = {
    "output_text": (_MESSAGE, "text"),
    "text": (_MESSAGE, "text"),
    "refusal": (_MESSAGE, "text"),
    "summary_text": (_REASONING, "summary"),
    "reasoning_text": (_REASONING, "content"),
}
"""The same by the type of a part."""

_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.cancelled"})


_PARTS_TRIED: Final = 16
"""How many parts of an item, counted from the latest, a piece is looked for in."""


class _Part(Struct):
    key: Hashable
    index: int | None


class _Item(Struct, eq=False):
    place: int
    kind: str
    index: int | None = None
    has_id: bool = False
    has_begun: bool = False
    """An event of the item itself was received, and not only some of its text."""
    is_whole: bool = False
    parts: dict[str, list[_Part]] = field(default_factory=dict)
    chars: int = 0
    words: int = 0
    """Checksum of what was said, without white space."""
    announced: JsonMapping = field(default_factory=dict)
    """What was announced. Some servers say it all there."""
    name: str = ""
    """Of the called tool."""
    slot: int | None = None
    """Its number among the calls."""


class ResponsesFold(JsonFold):
    """Folds one reply."""

    def __init__(self) -> None:
        super().__init__()
        self._texts = KeyedTexts()
        self._thoughts = KeyedTexts("\n\n")
        self._items: list[_Item] = []
        self._by_id: dict[str, _Item | None] = {}
        """None: several items have that id."""
        self._by_index: dict[int, _Item] = {}
        self._calls = 0
        self._listed_last: list[Delta] = []
        """What only the event that ends the reply with an error has listed."""

    def break_off(self) -> list[Delta]:
        return [*self._listed_last, *super().break_off()]

    def chunk(self, chunk: JsonMapping) -> list[Delta]:
        kind = text_of(chunk.get("type"))
        response = chunk.get("response")
        if isinstance(response, dict):
            return list(self._response(kind, response))
        index, ids = parse_index(chunk.get("output_index")), ids_of(chunk)
        if index is not None and not 0 <= index < ITEMS_MAX:
            index, kind = None, kind if ids else ""
        what, _, step = kind.removeprefix("response.").rpartition(".")
        if step in _KINDS:
            what, step = step, "done" if whole_text(chunk) else "delta"
        return list(self._event_of(what, step, chunk, index, ids)) if kind.startswith("response.") else []

    def flush(self) -> list[Delta]:
        silent = [item for item in self._items if not (item.is_whole or item.chars)]
        alone = ((item, item.announced) for item in silent if any(chain(*texts_in(item.announced).values())))
        return [*(delta for item, written in alone for delta in self._complete(item, written)), *super().flush()]

    def whole(self, body: object) -> list[Delta]:
        response = reply_in(body, "output", list, "a response")
        return self.take({"type": f"response.{text_of(response.get('status')) or 'completed'}", "response": response})

    def _response(self, kind: str, response: JsonMapping) -> Iterator[Delta]:
        self._set_vendor_model(response.get("model"))
        status = text_of(response.get("status"))
        listed = self._listed(objects(response.get("output"))[:ITEMS_MAX], text_of(response.get("output_text")))
        if "response.failed" in (kind, f"response.{status}"):
            self._listed_last = list(listed)
            list(self._add_usage(response.get("usage")))
            raise error_in_stream(response if response.get("error") else {"error": truncated_json(response)})
        if _ENDS.isdisjoint((kind, f"response.{status}")):
            return
        yield from listed
        yield from self._add_usage(response.get("usage"))
        details = response.get("incomplete_details")
        self._set_finish_reason(details.get("reason") if isinstance(details, dict) else None)
        self._set_finish_reason(self._reason or status or kind.removeprefix("response."))
        self.is_done = True

    def _event_of(self, what: str, step: str, event: JsonMapping, index: int | None, ids: list[str]) -> Iterator[Delta]:
        written = event.get("item")
        if what == "output_item" and isinstance(written, dict):
            kind = text_of(written.get("type"))
            item = self._written(written, index, ids) if step == "done" else self._announced(written, index, ids)
            item = self._note(item or self._new(kind), index, ids)
            if item and step == "done":
                yield from self._complete(item, written)
            elif item:
                item.has_begun, item.announced = True, item.announced or written
                yield from self._call(item, "", written) if kind == _CALL else ()
            return
        if what.endswith("_part") and step == "done" and isinstance(part := event.get("part"), dict):
            kind, member = _PART_KINDS.get(text_of(part.get("type")), ("", ""))
        else:
            kind, member = _KINDS.get(what, ("", ""))
        if kind:
            text = whole_text(event) if step == "done" else ""
            if item := self._note(self._of_piece(kind, index, ids, text) or self._new(kind), index, ids):
                if kind == _CALL and event.get("name"):
                    yield from self._call(item, "", event)
                yield from self._piece(item, member, step, event)

    # Which item

    def _new(self, kind: str) -> _Item | None:
        if len(self._items) >= ITEMS_MAX:
            return None
        self._items.append(_Item(len(self._items), kind))
        return self._items[-1]

    def _note(self, item: _Item | None, index: int | None, ids: list[str]) -> _Item | None:
        """Remember under which names an item comes."""
        if item is None:
            return None
        if index is not None:
            item.index = index if item.index is None else item.index
            self._by_index[index] = item
        item.has_id |= bool(ids)
        for one in ids:
            if len(self._by_id) < KEYS_MAX or one in self._by_id:
                self._by_id[one] = item if self._by_id.get(one, item) is item else None
        return item

    def _named(self, kind: str, ids: list[str]) -> _Item | None:
        found = (self._by_id.get(one) for one in ids)
        return next((item for item in found if item and item.kind == kind), None)

    def _indexed(self, kind: str, index: int | None) -> _Item | None:
        item = None if index is None else self._by_index.get(index)
        return item if item and item.kind == kind else None

    def _of_piece(self, kind: str, index: int | None, ids: list[str], text: str) -> _Item | None:
        """The item of a piece, or of a complete `text`; None if it is new."""
        named, indexed = self._named(kind, ids), self._indexed(kind, index)
        if named and indexed and indexed.index == index != named.index:
            # An id that all items have.
            named = indexed
        latest = next((one for one in reversed(self._items) if one.kind == kind and not one.is_whole), None)
        if latest and not latest.has_begun:
            # Only texts told of it: those of another index, or without one of another id, are another item's.
            is_placed = index is not None and latest.index is not None
            is_another = index != latest.index if is_placed else ids and latest.has_id
            latest = None if is_another and not (text and latest.words == words_of(text)) else latest
        item = next((one for one in (named, indexed, latest) if one and not one.is_whole), None)
        return item or named or (None if ids else indexed) or self._with_text(kind, index, text)

    def _with_text(self, kind: str, index: int | None, text: str) -> _Item | None:
        """The item that has said all of a text; None for a text of another index."""
        same = (one for one in reversed(self._items) if text and one.kind == kind and one.words == words_of(text))
        return next((one for one in same if None in (index, one.index) or index == one.index), None)

    def _announced(self, written: JsonMapping, index: int | None, ids: list[str]) -> _Item | None:
        """The item of an announcement that comes again, or after some of its text; None if it is new."""
        kind = text_of(written.get("type"))
        named, indexed = self._named(kind, ids), self._indexed(kind, index)
        if named and not named.is_whole and _may_be(named, written):
            # An id that all items have: the text of one does not begin with the announcement of the next.
            is_next = named.has_begun and named.chars and None not in (index, named.index) and index != named.index
            return None if is_next else named
        if indexed is None or indexed.is_whole or not _may_be(indexed, written):
            return None
        is_another = indexed.has_begun and (indexed.chars or (ids and indexed.has_id))
        return None if is_another else indexed

    def _written(self, written: JsonMapping, index: int | None, ids: list[str]) -> _Item | None:
        """The item that a complete one is, by what was said of it; None if it is new."""
        kind = text_of(written.get("type"))
        named, indexed = self._named(kind, ids), self._indexed(kind, index)
        items = [one for one in self._items if one.kind == kind and _may_be(one, written)]
        if named is not None and named in items and (self._fits(named, written) or (named.is_whole and kind != _CALL)):
            return named
        open_ones = [one for one in items if not one.is_whole]
        fitting = [one for one in open_ones if self._fits(one, written)]
        if fitting:
            return max(fitting, key=lambda one: (one.chars, one is indexed))
        if indexed is not None and indexed in items and (indexed in open_ones or self._fits(indexed, written)):
            return indexed
        return (
            named if named in open_ones else open_ones[0] if len(open_ones) == 1 and not open_ones[0].has_id else None
        )

    def _listed(self, output: list[JsonMapping], text: str) -> Iterator[Delta]:
        """What the last event lists, compared with what was received: by ids, by what was said, then in order.

        `text` stands beside the items: that of all messages.
        """
        left, found = [*self._items], dict[int, _Item]()

        def claim(fits: Callable[[_Item, JsonMapping], bool]) -> None:
            for number, written in enumerate(output):
                same = (one for one in left if number not in found and one.kind == written.get("type"))
                for item in filter(lambda one: fits(one, written), same):
                    left.remove(item)
                    found[number] = item
                    break

        claim(lambda one, written: one is self._named(one.kind, ids_of({"item": written})))
        claim(lambda one, written: _may_be(one, written) and self._fits(one, written))
        missing = Counter(text_of(one.get("type")) for number, one in enumerate(output) if number not in found)
        spare = Counter(one.kind for one in left)
        claim(lambda one, _: missing[one.kind] <= spare[one.kind])
        for number, written in enumerate(output):
            item = found.get(number) or self._new(text_of(written.get("type")))
            if item is not None and not item.is_whole:
                yield from self._complete(item, written)
        yield from self._beside(text)

    def _beside(self, text: str) -> Iterator[Delta]:
        """What a text beside the items says more than they do, if none of them is complete."""
        messages = [item for item in self._items if item.kind == _MESSAGE]
        chars = 0
        for item in messages:
            received = None if item.is_whole else self._chars_received(item, "text", text[chars:])
            if received is None:
                return
            chars += received
        last = messages[-1] if messages else self._new(_MESSAGE)
        if last and (rest := text[chars:]):
            yield from self._say(last, self._store(last).add(self._part(last, "text", None).key, rest))

    def _fits(self, item: _Item, written: JsonMapping) -> bool:
        """Whether a complete item begins with what was said of one, or is all of it if that is complete.

        All of it may differ in white space: some proxies strip texts, or write arguments anew.
        """
        if item.chars and item.words == words_of("".join(chain(*texts_in(written).values()))):
            return True
        for member, texts in texts_in(written).items():
            text = "".join(texts)
            chars = self._chars_received(item, member, text)
            if chars is None or (item.is_whole and chars < len(text)):
                return False
        return True

    def _chars_received(self, item: _Item, member: str, text: str) -> int | None:
        chars = 0
        for part in item.parts.get(member, ()):
            received = self._store(item).chars_received(part.key, text[chars:])
            if received is None:
                return None
            chars += received
        return chars

    # What it says

    def _store(self, item: _Item) -> KeyedTexts:
        return self._thoughts if item.kind == _REASONING else self._texts

    def _piece(self, item: _Item, member: str, step: str, event: JsonMapping) -> Iterator[Delta]:
        if not member and isinstance(source := event.get("annotation"), dict):
            yield from self._add_citation(source)
        if not member or item.is_whole:
            return
        index = parse_index(event.get("summary_index" if member == "summary" else "content_index"))
        if step == "done":
            text = whole_text(event)
            if part := self._whole_part(item, member, index, text):
                yield from self._say(item, self._store(item).whole(part.key, text))
        elif text := text_of(event.get("delta")):
            yield from self._say(item, self._store(item).add(self._part(item, member, index).key, text))

    def _part(self, item: _Item, member: str, index: int | None) -> _Part:
        """The part of a piece: the open one with its index, or the latest if one of them has none; else a new one."""
        parts = item.parts.setdefault(member, [])
        if member == "arguments" and parts:
            return parts[0]
        is_whole = self._store(item).is_whole
        open_ones = [part for part in reversed(parts[-_PARTS_TRIED:]) if not is_whole(part.key)]
        for part in open_ones:
            if part.index == index:
                return part
        if open_ones and (index is None or open_ones[0].index is None):
            return open_ones[0]
        parts.append(_Part((item.place, member, len(parts)), index))
        return parts[-1]

    def _whole_part(self, item: _Item, member: str, index: int | None, text: str) -> _Part | None:
        """The part that a complete text is, by what was said of it; None if it was complete before."""
        store, parts = self._store(item), item.parts.get(member, [])[-_PARTS_TRIED:]
        received = [(part, store.chars_received(part.key, text)) for part in reversed(parts)]
        begun = [part for part, chars in received if chars is not None and not store.is_whole(part.key)]
        if begun:
            return next((part for part in begun if part.index == index), begun[0])
        if not text or any(chars == len(text) for _, chars in received):
            return None
        if same := [part for part in reversed(parts) if store.says(part.key, text)]:
            return None if store.is_whole(same[0].key) else same[0]
        return self._part(item, member, index)

    def _say(self, item: _Item, text: str) -> Iterator[Delta]:
        item.chars += len(text)
        item.words = words_of(text, item.words)
        if item.kind == _MESSAGE:
            yield from self._add_text(text, item.place)
        elif item.kind == _REASONING:
            yield from self._add_reasoning(text)
        else:
            yield from self._call(item, text)

    def _complete(self, item: _Item, written: JsonMapping) -> Iterator[Delta]:
        if item.is_whole:
            return
        if item.kind == _CALL:
            yield from self._call(item, "", written)
        for member, texts in texts_in(written).items():
            for text in self._rest(item, member, texts):
                yield from self._say(item, text)
        item.is_whole = True
        if item.kind == _REASONING:
            yield from self._reasoned(item.place, written)
        elif item.kind == _MESSAGE:
            for source in chain.from_iterable(
                objects(part.get("annotations")) for part in objects(written.get("content"))
            ):
                yield from self._add_citation(source)
        elif item.kind and item.kind != _CALL and len(text := compact_json(written)) <= BLOCK_CHARS_MAX:
            yield AddServerBlock(ServerBlock(item.place, text))

    def _rest(self, item: _Item, member: str, texts: list[str]) -> Iterator[str]:
        """What was not said of the texts of a complete item. What was said otherwise stays as it was."""
        store, received = self._store(item), self._chars_received(item, member, "".join(texts))
        parts = item.parts.setdefault(member, [])
        if received is None:
            texts, received = texts[len(parts) :], 0
        for text in texts:
            if received < len(text):
                if not (received and parts):
                    parts.append(_Part((item.place, member, len(parts)), None))
                yield store.add(parts[-1].key, text[received:])
            received = max(0, received - len(text))

    def _reasoned(self, place: int, item: JsonMapping) -> Iterator[Delta]:
        rest = {name: value for name, value in item.items() if name not in ("type", "id", "status")}
        data = compact_json(rest)
        if len(data) <= BLOCK_CHARS_MAX:
            text = join_surrogates("\n\n".join(chain(*texts_in(item).values())))
            yield SetThinkingBlocks(
                (ThinkingBlock(_REASONING, place, join_surrogates(text_of(item.get("id"))), text, data=data),)
            )

    def _call(self, item: _Item, arguments: str, written: JsonMapping | None = None) -> Iterator[Delta]:
        if item.slot is None:
            item.slot, self._calls = self._calls, self._calls + 1
        function: JsonObject = {"arguments": arguments}
        fragment: JsonObject = {"index": item.slot, "function": function}
        signature = ""
        if written and not item.name:
            # Repetitions have other ids behind some proxies.
            item.name = function["name"] = text_of(written.get("name"))[:CALL_NAME_CHARS_MAX]
            fragment["id"] = written.get("call_id") or written.get("id")
            signature = json.dumps({"namespace": written["namespace"]}) if written.get("namespace") else ""
        if tools := self._tools.feed([fragment], block=item.place, signature=signature):
            yield tools


def _may_be(item: _Item, written: JsonMapping) -> bool:
    """Whether a written item can be one, as far as the called tool says."""
    return not item.name or item.name == text_of(written.get("name"))[:CALL_NAME_CHARS_MAX]
