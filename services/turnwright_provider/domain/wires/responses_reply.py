"""Fold from the typed events of OpenAI's Responses API to deltas.

Events identify their item by `output_index`, `item_id`, or neither: llama.cpp sends no index, and GitHub Copilot sends
another id in each event, so the index takes precedence. The content of deltas is repeated in `done` events and items;
each is emitted once.
Source: research/wire 2.1, "where a correct client must differ" 7, 8; rows RD01-RD05.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

from turnwright_core.chat.deltas import AddServerBlock, Delta, SetThinkingBlocks
from turnwright_core.chat.message import ServerBlock, ThinkingBlock
from turnwright_provider.domain.error_body import truncated_json
from turnwright_provider.domain.keyed_texts import KeyedTexts
from turnwright_provider.domain.surrogates import join_surrogates
from turnwright_provider.domain.tool_calls import parse_index, text_of
from turnwright_provider.domain.wires.json_fold import (
    JsonFold,
    compact_json,
    error_in_stream,
    objects,
    reply_in,
)

ITEMS_MAX: Final = 1000
"""Most items of one reply; others are ignored."""

BLOCK_CHARS_MAX: Final = 3 * 1024 * 1024
"""Longest block that can go back, in characters of JSON: it is handed on in one piece."""

_TEXTS: Final = {"output_text": "text", "refusal": "refusal"}
"""Part of a message -> the field with its text."""

_WHOLE: Final = ("text", "refusal", "arguments")
"""Where an event has a text that is complete."""

_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.cancelled"})


class ResponsesFold(JsonFold):
    """Folds one reply."""

    def __init__(self) -> None:
        super().__init__()
        self._texts = KeyedTexts()
        self._thoughts = KeyedTexts("\n\n")
        self._arguments = KeyedTexts()
        self._places: dict[Hashable, int] = {}
        self._slots: dict[int, int] = {}
        self._named: set[int] = set()
        self._whole: set[int] = set()

    def chunk(self, chunk: Mapping[str, Any]) -> list[Delta]:
        kind = text_of(chunk.get("type"))
        response = chunk.get("response")
        if isinstance(response, dict):
            return list(self._response(kind, response))
        place = self._place(chunk)
        if place is None or not kind.startswith("response."):
            return []
        what, _, step = kind.removeprefix("response.").rpartition(".")
        return list(self._event_of(place, what, step, chunk))

    def whole(self, body: Any) -> list[Delta]:
        response = reply_in(body, "output", list, "a response")
        return self.take({"type": f"response.{text_of(response.get('status')) or 'completed'}", "response": response})

    def _response(self, kind: str, response: Mapping[str, Any]) -> Iterator[Delta]:
        self._set_vendor_model(response.get("model"))
        if kind == "response.failed":
            raise error_in_stream(response if response.get("error") else {"error": truncated_json(response)})
        if kind not in _ENDS:
            return
        if not self._places:
            # Nothing was streamed, or all came in one body.
            for index, item in enumerate(objects(response.get("output"))[:ITEMS_MAX]):
                yield from self._item(index, item)
        yield from self._add_usage(response.get("usage"))
        details = response.get("incomplete_details")
        self._set_finish_reason(details.get("reason") if isinstance(details, dict) else None)
        self._set_finish_reason(self._reason or text_of(response.get("status")) or kind.removeprefix("response."))
        self.is_done = True

    def _place(self, event: Mapping[str, Any]) -> int | None:
        """The index of an event's item."""
        index = parse_index(event.get("output_index"))
        item = event.get("item")
        name = event.get("item_id") or (item.get("id") if isinstance(item, dict) else None)
        key: Hashable = index if index is not None else text_of(name)
        if key not in self._places and len(self._places) < ITEMS_MAX:
            self._places[key] = len(self._places) if index is None else index
        place = self._places.get(key)
        return place if place is not None and 0 <= place < ITEMS_MAX else None

    def _event_of(self, place: int, what: str, step: str, event: Mapping[str, Any]) -> Iterator[Delta]:
        key: Hashable
        match what:
            case "output_text" | "refusal":
                key = place, parse_index(event.get("content_index")) or 0
                yield from self._add_text(_new_text(self._texts, key, step, event), place)
            case "reasoning_summary_text":
                key = place, "summary", parse_index(event.get("summary_index")) or 0
                yield from self._add_reasoning(_new_text(self._thoughts, key, step, event))
            case "reasoning_text":
                key = place, "content", parse_index(event.get("content_index")) or 0
                yield from self._add_reasoning(_new_text(self._thoughts, key, step, event))
            case "function_call_arguments":
                yield from self._call(place, _new_text(self._arguments, place, step, event))
            case "output_text.annotation" if isinstance(source := event.get("annotation"), dict):
                yield from self._add_citation(source)
            case "output_item" if isinstance(item := event.get("item"), dict):
                yield from self._item(place, item) if step == "done" else self._begins(place, item)

    def _begins(self, place: int, item: Mapping[str, Any]) -> Iterator[Delta]:
        if item.get("type") == "function_call":
            yield from self._call(place, "", item)

    def _item(self, place: int, item: Mapping[str, Any]) -> Iterator[Delta]:
        if place in self._whole:
            return
        self._whole.add(place)
        match item.get("type"):
            case "message":
                yield from self._message(place, item)
            case "reasoning":
                yield from self._reasoned(place, item)
            case "function_call":
                yield from self._call(place, self._arguments.whole(place, text_of(item.get("arguments"))), item)
            case str():
                text = compact_json(item)
                if len(text) <= BLOCK_CHARS_MAX:
                    yield AddServerBlock(ServerBlock(place, text))

    def _message(self, place: int, item: Mapping[str, Any]) -> Iterator[Delta]:
        for index, part in enumerate(objects(item.get("content"))):
            text = text_of(part.get(_TEXTS.get(text_of(part.get("type")), "")))
            yield from self._add_text(self._texts.whole((place, index), text), place)
            for source in objects(part.get("annotations")):
                yield from self._add_citation(source)

    def _reasoned(self, place: int, item: Mapping[str, Any]) -> Iterator[Delta]:
        texts = [
            ((place, kind, index), text_of(part.get("text")))
            for kind in ("summary", "content")
            for index, part in enumerate(objects(item.get(kind)))
        ]
        for key, text in texts:
            yield from self._add_reasoning(self._thoughts.whole(key, text))
        rest = {name: value for name, value in item.items() if name not in ("type", "id", "status")}
        data = compact_json(rest)
        if len(data) <= BLOCK_CHARS_MAX:
            text = join_surrogates("\n\n".join(text for _, text in texts))
            yield SetThinkingBlocks(
                (ThinkingBlock("reasoning", place, join_surrogates(text_of(item.get("id"))), text, data=data),)
            )

    def _call(self, place: int, arguments: str, item: Mapping[str, Any] | None = None) -> Iterator[Delta]:
        slot = self._slots.setdefault(place, len(self._slots))
        fragment: dict[str, Any] = {"index": slot, "function": {"arguments": arguments}}
        if item and place not in self._named:
            # A repetition, with other ids behind some proxies.
            self._named.add(place)
            fragment["id"] = item.get("call_id") or item.get("id")
            fragment["function"]["name"] = item.get("name")
            spaced = {"namespace": item["namespace"]} if item.get("namespace") else {}
            self._tools.mark(slot, place, json.dumps(spaced) if spaced else "")
        if tools := self._tools.feed([fragment]):
            yield tools


def _new_text(texts: KeyedTexts, key: Hashable, step: str, event: Mapping[str, Any]) -> str:
    """The new text in an event with a part or the whole of it."""
    if step != "done":
        return texts.add(key, text_of(event.get("delta")))
    return texts.whole(key, next((text for name in _WHOLE if (text := text_of(event.get(name)))), ""))
