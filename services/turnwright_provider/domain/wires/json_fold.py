"""The common part of all folds: JSON events in, deltas out, and the checks at the end of a stream."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from turnwright_values.provider import Finish
from turnwright_values.replies import ThinkingBlock
from turnwright_values.types import Usage

from turnwright_core.chat.deltas import (
    AddCitation,
    AppendContent,
    AppendReasoning,
    Delta,
    SetThinkingBlocks,
    SetUsage,
)
from turnwright_core.json_text import JsonMapping, JsonObject, parse_json
from turnwright_core.limits import FINISH_REASON_CHARS_MAX, VENDOR_MODEL_CHARS_MAX
from turnwright_provider.domain.classify import classify_in_stream
from turnwright_provider.domain.error_body import is_error_body, truncated_json
from turnwright_provider.domain.failures import FailureClass, VendorError, failed
from turnwright_provider.domain.model_call import VendorEvent, was_cut
from turnwright_provider.domain.sse import SseEvent
from turnwright_provider.domain.surrogates import SurrogateJoiner, join_surrogates
from turnwright_provider.domain.think_tags import ThinkRouter, ThinkTags, calls_in_reasoning
from turnwright_provider.domain.tool_calls import ToolCallFold, text_of
from turnwright_provider.domain.usage import merge_usage, read_usage
from turnwright_provider.domain.wires.blocks import TEXT

DONE: Final = "[DONE]"

CITATIONS_CHARS_MAX: Final = 1024 * 1024
"""Maximum length of the sources of a reply together, in code points."""

_IDLE_EVENTS: Final = frozenset({"ping", "heartbeat", "keepalive"})


PIECES_MAX: Final = 1025
"""Maximum number of pieces of a text that are tracked: above the maximum of blocks, so it is all or none."""


class _Piece(Struct):
    place: int
    start: int
    sources: int = 0


class JsonFold(ABC):
    """Folds one reply out of JSON objects; a wire says what one object means."""

    def __init__(self, think_tags: ThinkTags | None = None) -> None:
        """`think_tags` says which `<think>` in the content is reasoning (RD09); None where a wire has no such tags."""
        self._router = ThinkRouter(think_tags) if think_tags else None
        self._content = SurrogateJoiner()
        self._reasoning = SurrogateJoiner()
        self._tools = ToolCallFold()
        self._usage: Usage | None = None
        self._reason = ""
        self._vendor_model = ""
        self._chunks = 0
        self._text_chars = 0
        self._content_chars = 0
        self._pieces: list[_Piece] = []
        self._cited: set[str] = set()
        self._cited_chars = 0
        self.is_done = False
        """Whether the server has sent an end marker."""

    @abstractmethod
    def chunk(self, chunk: JsonMapping) -> list[Delta]:
        """The deltas of one object. Raises VendorError."""

    @abstractmethod
    def whole(self, body: object) -> list[Delta]:
        """The deltas of a reply that came as one JSON body. Raises VendorError when it is none."""

    @property
    def is_ended(self) -> bool:
        """Whether the reply is complete, even if more follows."""
        return self.is_done or bool(self._reason)

    @property
    def has_begun(self) -> bool:
        return self._chunks > 0

    @property
    def progress(self) -> int:
        """A number that grows with the reply, and with nothing else that a server sends."""
        return self._text_chars + self._tools.chars + self.is_ended

    def event(self, event: SseEvent) -> list[Delta]:
        """The deltas of one event. Raises VendorError for an error that the server sent in its stream."""
        try:
            return self._event(event)
        except RecursionError:
            raise failed(FailureClass.PROTOCOL, f"an event is nested too deeply: {event.data[:200]}") from None

    def _event(self, event: SseEvent) -> list[Delta]:
        data = event.data.strip()
        if self.is_done or not data or event.name in _IDLE_EVENTS:
            return []
        if data == DONE:
            self.is_done = True
            return []
        if event.name == "error":
            raise error_in_stream(_parsed(data))
        try:
            chunk = self._parse(data)
        except VendorError:
            # After a stop reason nothing is missing.
            if not self.is_ended:
                raise
            self.is_done = True
            return []
        return self.take(chunk)

    def take(self, chunk: object) -> list[Delta]:
        """The deltas of one parsed chunk. Raises VendorError for an error object, and for what is not an object."""
        if not isinstance(chunk, dict):
            raise failed(FailureClass.PROTOCOL, f"a chunk is not an object: {str(chunk)[:100]}")
        if is_error_body(chunk):
            list(self._add_usage(chunk.get("usage")))
            raise error_in_stream(chunk)
        self._chunks += 1
        return self.chunk(chunk)

    def flush(self) -> list[Delta]:
        """What was buffered, which is delivered even if the stream breaks off."""
        deltas: list[Delta] = []
        if thought := self._reasoning.end():
            deltas.append(AppendReasoning(thought))
        deltas += self._last_content(self._content.end())
        tools = self._tools.end()
        deltas += [] if tools is None else [tools]
        return [*deltas, *self._places_of_text()]

    def break_off(self) -> list[Delta]:
        """The last deltas of a reply that fails: what was buffered, and what it has consumed."""
        return [*self.flush(), *([SetUsage(self._usage)] if self._usage else [])]

    def close(self) -> list[VendorEvent]:
        """The last deltas and the end. Raises VendorError if the stream was empty or was cut off."""
        if not self._chunks:
            raise failed(
                FailureClass.PROTOCOL,
                "the answer was 200 without a single event; some servers do this when the prompt is too long for them",
            )
        if not self.is_ended:
            raise failed(FailureClass.SERVER, "the stream ended without a finish reason")
        deltas, finish = self.flush(), Finish(self._reason, self._usage, self._vendor_model)
        if self._router and not was_cut(finish) and (calls := calls_in_reasoning(self._router.unclosed)):
            deltas.append(AppendContent(calls))
        return [*deltas, finish]

    def _last_content(self, text: str) -> list[Delta]:
        if self._router:
            return [*self._router.feed(text), *self._router.end()]
        self._content_chars += len(text)
        return [AppendContent(text)] if text else []

    def _places_of_text(self) -> list[Delta]:
        """The positions of text pieces among the other blocks, if there are several.

        If texts alternate, a few characters each, it is unknown which piece belongs to which.
        """
        places = [piece.place for piece in self._pieces]
        if not 1 < len(places) == len(set(places)):
            return []
        ends = [*(piece.start for piece in self._pieces[1:]), self._content_chars]
        blocks = (
            ThinkingBlock(TEXT, piece.place, data=f"{piece.start}:{end}:{piece.sources}")
            for piece, end in zip(self._pieces, ends, strict=True)
        )
        return [SetThinkingBlocks(tuple(blocks))]

    def _parse(self, data: str) -> object:
        try:
            return parse_json(data)
        except ValueError:
            # After chunks in good order it is a gateway's page in the middle of the stream, which passes.
            kind = FailureClass.GATEWAY if self._chunks else FailureClass.PROTOCOL
            raise failed(kind, f"the data of an event is not JSON: {data[:200]}") from None

    # What a chunk can bring, for the wires.

    def _add_text(self, text_delta: str, place: int | None = None) -> Iterator[Delta]:
        """A piece of the text. `place` is the index of its block, if the wire has blocks."""
        self._text_chars += len(text_delta)
        if place is not None and text_delta:
            self._begin_piece(place)
        text = self._content.feed(text_delta)
        if self._router:
            yield from self._router.feed(text)
        elif text:
            self._content_chars += len(text)
            yield AppendContent(text)

    def _begin_piece(self, place: int) -> None:
        is_new = not self._pieces or self._pieces[-1].place != place
        if is_new and len(self._pieces) < PIECES_MAX:
            self._pieces.append(_Piece(place, self._content_chars))

    def _add_reasoning(self, text_delta: str) -> Iterator[Delta]:
        self._text_chars += len(text_delta)
        if text := self._reasoning.feed(text_delta):
            yield AppendReasoning(text)

    def _add_citation(self, source: JsonMapping) -> Iterator[Delta]:
        """A source, once, however often the server repeats it."""
        text = compact_json(source)
        if text not in self._cited and self._cited_chars + len(text) <= CITATIONS_CHARS_MAX:
            self._cited.add(text)
            if self._pieces:
                self._pieces[-1].sources += 1
            self._cited_chars += len(text)
            yield AddCitation(text)

    def _set_vendor_model(self, model: object) -> None:
        self._vendor_model = self._vendor_model or join_surrogates(text_of(model)[:VENDOR_MODEL_CHARS_MAX])

    def _set_finish_reason(self, reason: object) -> None:
        self._reason = join_surrogates(text_of(reason)[:FINISH_REASON_CHARS_MAX]) or self._reason

    def _add_usage(self, raw: object) -> Iterator[Delta]:
        """Usage as the server reports it, in one of several formats."""
        if isinstance(raw, dict) and raw:
            self._usage = merge_usage(self._usage, read_usage(raw))
            yield SetUsage(self._usage)


def compact_json(value: object) -> str:
    """A value as JSON, in text that can be sent."""
    return join_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _parsed(data: str) -> object:
    try:
        return parse_json(data)
    except (ValueError, RecursionError):
        return data


def reply_in(body: object, member: str, kind: type, name: str) -> JsonObject:
    """A whole reply, which has this member. Raises VendorError for an error and for any other body."""
    if isinstance(body, dict) and is_error_body(body):
        raise error_in_stream(body)
    if not isinstance(body, dict) or not isinstance(body.get(member), kind):
        raise failed(FailureClass.PROTOCOL, f"the JSON body is not {name}: {truncated_json(body)[:200]}")
    return body


def error_in_stream(body: object) -> VendorError:
    return VendorError(classify_in_stream(body))


def objects(value: object) -> list[JsonMapping]:
    """The objects in a list; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
