"""Fold from the chunks of Google's Gemini to deltas, streamed or in a list or alone.

A chunk has parts: text, thoughts, calls, and results of Google's own tools. Adjacent texts are one block; a signature
may be on any part, often on an empty text at the end, and is sent back on that part:

    of a call        ToolCall.signature
    of a thought     a thinking block `thought`
    of a text        a thinking block `text`, whose data is the part of the reply's text that was signed, `start:end`

Thoughts without a signature are summaries, and not sent back. A stream has no end marker.
Source: research/wire 2.1, 2.3; rows RD01-RD05, RD08.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field
from turnwright_values.replies import ServerBlock, ThinkingBlock

from turnwright_core.chat.deltas import AddServerBlock, Delta, SetThinkingBlocks
from turnwright_core.json_text import JsonMapping, JsonObject, json_object
from turnwright_core.limits import CALL_NAME_CHARS_MAX
from turnwright_provider.domain.error_body import is_error_body, truncated_json
from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.surrogates import join_surrogates
from turnwright_provider.domain.tool_calls import ARGUMENTS_CHARS_MAX, arguments_of, id_of, parse_index, text_of
from turnwright_provider.domain.wires.blocks import TEXT
from turnwright_provider.domain.wires.json_fold import JsonFold, compact_json, error_in_stream, objects

# Arguments of a call that Gemini streams: a value for a JSONPath each, texts in pieces, such as
# `{"jsonPath": "$.items[0].name", "stringValue": "app", "willContinue": true}`.
# Source: cases wire/gemini; Google's reference of `FunctionCall.partialArgs`.

_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_VALUES: Final = ("numberValue", "boolValue", "nullValue")

STEPS_MAX: Final = 64
"""Deepest value; those below are ignored."""


class PartialArguments:
    """Assembles the arguments of one call from its pieces."""

    def __init__(self) -> None:
        self._whole: JsonMapping = {}
        self._values: JsonObject = {}
        self._chars = 0

    def add(self, piece: JsonMapping) -> None:
        """Add one piece. Raises VendorError if the total is too long."""
        path, text = piece.get("jsonPath"), piece.get("stringValue")
        if not isinstance(path, str):
            return
        self._chars += len(path) + (len(text) if isinstance(text, str) else 0)
        if self._chars > ARGUMENTS_CHARS_MAX:
            raise failed(FailureClass.PROTOCOL, f"the arguments of a call are over {ARGUMENTS_CHARS_MAX} characters")
        if isinstance(text, str):
            held = self._values.setdefault(path, [])
            if isinstance(held, list):
                held.append(text)
            return
        for name in _VALUES:
            if name in piece:
                self._values[path] = None if name == "nullValue" else piece[name]

    def set(self, arguments: JsonMapping) -> None:
        self._whole = arguments

    def text(self) -> str:
        root: JsonObject = dict(self._whole)
        for path, value in self._values.items():
            steps = _steps(path)
            if steps:
                _set(root, steps, "".join(value) if isinstance(value, list) else value)
        return json.dumps(root, ensure_ascii=False, separators=(",", ":"))


def _steps(path: str) -> list[str | int]:
    """The names and indexes on the way to a value; empty for an invalid path."""
    steps: list[str | int] = []
    at = 1
    while at < len(path) and len(steps) < STEPS_MAX:
        step = _STEP.match(path, at)
        if step is None:
            return []
        name, place, *quoted = step.groups()
        steps.append(int(place) if place else name or re.sub(r"\\(.)", r"\1", quoted[0] or quoted[1] or ""))
        at = step.end()
    return steps if path.startswith("$") and at >= len(path) else []


def _set(root: JsonObject, steps: list[str | int], value: object) -> None:
    """Set a value at a path; values out of order or contradicting others are left out."""
    holder: object = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        inner = value if following is None else [] if isinstance(following, int) else {}
        if isinstance(holder, list) and isinstance(step, int) and step <= len(holder):
            if step == len(holder):
                holder.append(inner)
            elif following is None:
                holder[step] = inner
            holder = holder[step]
        elif isinstance(holder, dict) and isinstance(step, str):
            holder = holder.setdefault(step, inner)
        else:
            return


KEPT_CHARS_MAX: Final = 3 * 1024 * 1024
"""Maximum of the blocks of a reply together, in code points: each is one delta. Further ones are ignored."""

THOUGHT: Final = "thought"

_ENUMERATED: Final = ("", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER")
"""Reasons of servers that were asked for numbers."""

_SOURCES: Final = (
    ("groundingMetadata", "groundingChunks"),
    ("citationMetadata", "citationSources"),
    ("citationMetadata", "citations"),
)
"""Where sources stand, the last one at Vertex."""

_UNSPECIFIED: Final = "FINISH_REASON_UNSPECIFIED"


class _Call(Struct, eq=False):
    index: int
    id: str
    name: str
    place: int
    signature: str = ""
    arguments: PartialArguments = field(default_factory=PartialArguments)


class GeminiFold(JsonFold):
    """Folds one reply."""

    def __init__(self) -> None:
        super().__init__()
        self._place = 0
        self._in_text = False
        self._calls = 0
        self._open: list[_Call] = []
        self._kept_chars = 0

    def chunk(self, chunk: JsonMapping) -> list[Delta]:
        self._set_vendor_model(chunk.get("modelVersion"))
        deltas: list[Delta] = []
        candidates = objects(chunk.get("candidates"))
        for candidate in candidates:
            # Only the first alternative; requests never ask for more than one.
            if parse_index(candidate.get("index")) in (0, None):
                deltas += self._candidate(candidate)
        deltas += self._add_usage(_counts(chunk.get("usageMetadata")))
        feedback = chunk.get("promptFeedback")
        if not candidates and isinstance(feedback, dict) and feedback.get("blockReason"):
            raise failed(FailureClass.INVALID, f"the prompt was blocked: {truncated_json(feedback)[:500]}")
        return deltas

    def whole(self, body: object) -> list[Delta]:
        chunks = objects(body if isinstance(body, list) else [body])
        if not any(is_error_body(chunk) or "candidates" in chunk or "promptFeedback" in chunk for chunk in chunks):
            raise failed(
                FailureClass.PROTOCOL, f"the JSON body is not a reply of Gemini's: {truncated_json(body)[:200]}"
            )
        deltas = [delta for chunk in chunks for delta in self.take(chunk)]
        self.is_done = bool(self._reason)
        return deltas

    def take(self, chunk: object) -> list[Delta]:
        # A stream may break off with an error in a list.
        if isinstance(chunk, list) and chunk and isinstance(chunk[0], dict) and is_error_body(chunk[0]):
            raise error_in_stream(chunk)
        return super().take(chunk)

    def flush(self) -> list[Delta]:
        ended = [delta for call in [*self._open] for delta in self._end_call(call)]
        return [*ended, *super().flush()]

    def _candidate(self, candidate: JsonMapping) -> Iterator[Delta]:
        content = candidate.get("content")
        for part in objects(content.get("parts")) if isinstance(content, dict) else ():
            yield from self._part(part)
        for source in _sources(candidate):
            yield from self._add_citation(source)
        reason = candidate.get("finishReason")
        if (number := parse_index(reason)) and 0 < number < len(_ENUMERATED):
            reason = _ENUMERATED[number]
        self._set_finish_reason("" if reason == _UNSPECIFIED else reason)

    def _part(self, part: JsonMapping) -> Iterator[Delta]:
        signature = join_surrogates(text_of(part.get("thoughtSignature")))
        call, text = part.get("functionCall"), part.get("text")
        if isinstance(call, dict):
            yield from self._call(call, signature)
        elif not isinstance(text, str) and part.keys() - {"text", "thought", "thoughtSignature"}:
            yield from self._server_block(part)
        elif part.get("thought"):
            yield from self._thought(text_of(text), signature)
        else:
            yield from self._text(text_of(text), signature)

    def _text(self, text: str, signature: str) -> Iterator[Delta]:
        start = self._content_chars
        yield from self._add_text(text)
        if signature:
            yield from self._last_content(self._content.end())
            signed = f"{start}:{self._content_chars}"
            yield from self._sign(ThinkingBlock(TEXT, self._next(), signature=signature, data=signed))
        elif text and not self._in_text:
            self._next()
            self._in_text = True

    def _thought(self, text: str, signature: str) -> Iterator[Delta]:
        yield from self._add_reasoning(text)
        if signature:
            yield from self._sign(ThinkingBlock(THOUGHT, self._next(), text=join_surrogates(text), signature=signature))

    def _call(self, call: JsonMapping, signature: str) -> Iterator[Delta]:
        """A call, or a piece of an open one; an empty piece ends it."""
        call_id, name = id_of(call.get("id")), text_of(call.get("name"))[:CALL_NAME_CHARS_MAX]
        found = next((one for one in self._open if call_id and one.id == call_id), None)
        if found is None and self._open and not (call_id and self._open[-1].id):
            found = self._open[-1]
        if found is None or (name and name != found.name):
            if not name:
                return
            found = _Call(self._calls, call_id, name, self._next())
            self._open.append(found)
            self._calls += 1
            if call.get("willContinue"):
                yield from self._called(found, "")
        found.signature = signature or found.signature
        if arguments := json_object(arguments_of(call.get("args"))):
            found.arguments.set(arguments)
        for piece in objects(call.get("partialArgs")):
            found.arguments.add(piece)
            self._text_chars += 1
        if not call.get("willContinue"):
            yield from self._end_call(found)

    def _end_call(self, call: _Call) -> Iterator[Delta]:
        self._open.remove(call)
        yield from self._called(call, call.arguments.text())

    def _called(self, call: _Call, arguments: str) -> Iterator[Delta]:
        fragment = {"index": call.index, "id": call.id, "function": {"name": call.name, "arguments": arguments}}
        if calls := self._tools.feed([fragment], block=call.place, signature=call.signature):
            yield calls

    def _server_block(self, part: JsonMapping) -> Iterator[Delta]:
        text = compact_json(part)
        self._text_chars += len(text)
        if self._keeps(len(text)):
            yield AddServerBlock(ServerBlock(self._next(), text))

    def _sign(self, block: ThinkingBlock) -> Iterator[Delta]:
        if self._keeps(len(block.text) + len(block.signature)):
            yield SetThinkingBlocks((block,))

    def _keeps(self, chars: int) -> bool:
        self._kept_chars += chars
        return self._kept_chars <= KEPT_CHARS_MAX

    def _next(self) -> int:
        """The place of a new block."""
        self._in_text = False
        self._place += 1
        return self._place - 1


def _sources(candidate: JsonMapping) -> Iterator[JsonMapping]:
    for name, items in _SOURCES:
        metadata = candidate.get(name)
        yield from objects(metadata.get(items)) if isinstance(metadata, dict) else ()


def _counts(raw: object) -> JsonObject:
    """The figures; some reports have none."""
    return {name: count for name, count in raw.items() if name.endswith("TokenCount")} if isinstance(raw, dict) else {}
