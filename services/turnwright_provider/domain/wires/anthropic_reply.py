"""Fold from the events of Anthropic's Messages API to deltas.

    message_start  (content_block_start  content_block_delta*  content_block_stop)*  message_delta  message_stop

A delta belongs to the block of its index: servers keep several blocks open at once, and sign one after they have closed
it. Text, reasoning and arguments are emitted as they come, other blocks when they are complete. If an index begins
again after its block was closed, it is the next block: some servers do not count. A stop reason is the end, even
without message_stop. Source: research/wire 2.1, 2.3; rows RD01-RD05, RD08.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct, field
from turnwright_values.replies import ServerBlock, ThinkingBlock

from turnwright_core.chat.deltas import AddServerBlock, Delta, MergeExtra, SetThinkingBlocks
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.surrogates import join_surrogates
from turnwright_provider.domain.tool_calls import arguments_of, parse_index, text_of
from turnwright_provider.domain.wires.blocks import object_in
from turnwright_provider.domain.wires.json_fold import JsonFold, compact_json, objects, reply_in

BLOCKS_MAX: Final = 1024
"""Most blocks of one message; further ones are ignored."""

KEPT_CHARS_MAX: Final = 3 * 1024 * 1024
"""Maximum of reasoning and blocks of a message together, in code points: each block is one delta."""

_COUNTED: Final = (
    *("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    "output_tokens_details",
)
_MORE: Final = ("stop_sequence", "stop_details", "container", "context_management")
"""Fields of the end of a message, besides its stop reason, that are kept."""

_IMPLIED: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}
"""Kinds of delta that say of which type a block is that was never begun."""

_STREAMED: Final = frozenset({"text", "thinking", "tool_use"})
"""Types of blocks that are streamed; all others are the server's, and passed on when complete."""

_DIRECT: Final[Mapping[str, str]] = {"type": "direct"}
"""The caller of the model's own calls; the default."""


class _Block(Struct):
    place: int
    kind: str
    content: JsonObject
    call: int = 0
    signature: str = ""
    parts: list[str] = field(default_factory=list)
    is_open: bool = True
    has_input: bool = False


class AnthropicFold(JsonFold):
    """Folds one reply."""

    def __init__(self) -> None:
        super().__init__()
        self._id = ""
        self._blocks: dict[int, _Block] = {}
        self._by_index: dict[int, _Block] = {}
        self._last: _Block | None = None
        self._calls = 0
        self._counted: JsonObject = {}
        self._kept_chars = 0

    def chunk(self, chunk: JsonMapping) -> list[Delta]:
        return list(self._deltas(chunk, parse_index(chunk.get("index"))))

    def _deltas(self, event: JsonMapping, index: int | None) -> Iterator[Delta]:
        match event.get("type"):
            case "message_start":
                yield from self._begin(_object(event.get("message")))
            case "content_block_start":
                yield from self._open(index, _object(event.get("content_block")))
            case "content_block_delta":
                yield from self._grow(index, _object(event.get("delta")))
            case "content_block_stop":
                yield from self._close(self._block(index))
            case "message_delta":
                more = {"context_management": event.get("context_management")}
                yield from self._end({**more, **_object(event.get("delta"))})
                yield from self._add_usage(event.get("usage"))
            case "message_stop":
                yield from self._stop()

    def whole(self, body: object) -> list[Delta]:
        message = reply_in(body, "content", list, "a message")
        self._chunks += 1
        return [*self._begin(message), *self._end(message), *self._stop()]

    def flush(self) -> list[Delta]:
        return [*(self._stop() if self._reason else ()), *super().flush()]

    # The message

    def _begin(self, message: JsonMapping) -> Iterator[Delta]:
        own = text_of(message.get("id"))
        if self._id and own:
            if own != self._id:
                raise failed(FailureClass.PROTOCOL, f"message {own[:100]} begins inside message {self._id[:100]}")
            return
        self._id = own
        self._set_vendor_model(message.get("model"))
        for index, block in enumerate(objects(message.get("content"))):
            yield from self._open(index, block)
        yield from self._add_usage(message.get("usage"))

    def _end(self, fields: JsonMapping) -> Iterator[Delta]:
        self._set_finish_reason(fields.get("stop_reason"))
        more = {name: fields[name] for name in _MORE if fields.get(name) is not None}
        if more:
            yield MergeExtra(compact_json(more))

    def _stop(self) -> Iterator[Delta]:
        for block in self._blocks.values():
            yield from self._close(block)
        self.is_done = True

    def _add_usage(self, raw: object) -> Iterator[Delta]:
        """Each report has some of the figures; the others stay."""
        if isinstance(raw, dict):
            self._counted |= {name: raw[name] for name in _COUNTED if raw.get(name) is not None}
            yield from super()._add_usage(self._counted)

    # Its blocks

    def _open(self, index: int | None, content: JsonMapping) -> Iterator[Delta]:
        kind = text_of(content.get("type"))
        known = None if index is None else self._by_index.get(index)
        named = {name: content.get(name) for name in ("id", "name")}
        if known and known.is_open and known.kind == kind and all(known.content.get(n) == named[n] for n in named):
            if kind == "tool_use":
                yield from self._called(known, {**named, "arguments": ""})
            return
        block = self._new(index, kind, content if kind not in _STREAMED else named)
        if block is None:
            return
        match kind:
            case "text":
                # Its sources may arrive before it.
                self._begin_piece(block.place)
                yield from self._add_text(text_of(content.get("text")), block.place)
                for source in objects(content.get("citations")):
                    yield from self._add_citation(source)
            case "thinking":
                yield from self._thinking_delta(block, text_of(content.get("thinking")))
                yield from self._sign(block, text_of(content.get("signature")))
            case "tool_use":
                yield from self._call(block, content)

    def _new(self, index: int | None, kind: str, content: JsonMapping) -> _Block | None:
        place = index
        if place is None or place in self._blocks:
            place = max(self._blocks, default=-1) + 1
        if not 0 <= place < BLOCKS_MAX:
            return None
        self._count_buffered(len(compact_json(content)))
        block = _Block(place, kind, dict(content))
        self._blocks[place] = self._by_index[place if index is None else index] = self._last = block
        return block

    def _block(self, index: int | None, kind: str = "") -> _Block | None:
        """The block with an index; the latest one if the server leaves the index out, or arguments have a wrong one."""
        found = self._last if index is None else self._by_index.get(index)
        if kind != "input_json_delta" or (found and found.kind not in ("text", "thinking")):
            return found
        return self._last if self._last and self._last.kind == "tool_use" else found

    def _grow(self, index: int | None, delta: JsonMapping) -> Iterator[Delta]:
        kind = text_of(delta.get("type"))
        block = self._block(index, kind)
        if block is None and kind in _IMPLIED:
            block = self._new(index, _IMPLIED[kind], {})
        if block is None:
            return
        match kind:
            case "text_delta":
                yield from self._add_text(text_of(delta.get("text")), block.place)
            case "thinking_delta":
                yield from self._thinking_delta(block, text_of(delta.get("thinking")))
            case "signature_delta":
                yield from self._sign(block, text_of(delta.get("signature")))
            case "input_json_delta":
                yield from self._input(block, arguments_of(delta.get("partial_json")))
            case "citations_delta":
                for source in objects([delta.get("citation")]):
                    yield from self._add_citation(source)
            case "compaction_delta":
                fields = {name: value for name, value in delta.items() if name != "type" and value is not None}
                self._count_buffered(len(compact_json(fields)))
                block.content |= fields

    def _close(self, block: _Block | None) -> Iterator[Delta]:
        if block is None or not block.is_open:
            return
        block.is_open = False
        if block.kind == "thinking":
            yield from self._complete_deltas(block)
        elif block.kind == "redacted_thinking":
            data = join_surrogates(text_of(block.content.get("data")))
            yield SetThinkingBlocks((ThinkingBlock(block.kind, block.place, data=data),))
        elif block.kind not in _STREAMED:
            if block.parts:
                block.content["input"] = object_in("".join(block.parts))
            yield AddServerBlock(ServerBlock(block.place, compact_json(block.content)))

    # What they say

    def _thinking_delta(self, block: _Block, piece: str) -> Iterator[Delta]:
        self._count_buffered(len(piece))
        block.parts.append(piece)
        yield from self._add_reasoning(piece)

    def _sign(self, block: _Block, signature: str) -> Iterator[Delta]:
        if signature and block.kind == "thinking":
            self._count_buffered(len(signature))
            block.signature = signature
            if not block.is_open:
                yield from self._complete_deltas(block)

    def _complete_deltas(self, block: _Block) -> Iterator[Delta]:
        text, signature = join_surrogates("".join(block.parts)), join_surrogates(block.signature)
        yield SetThinkingBlocks((ThinkingBlock(block.kind, block.place, text=text, signature=signature),))

    def _call(self, block: _Block, content: JsonMapping) -> Iterator[Delta]:
        block.call, self._calls = self._calls, self._calls + 1
        caller, given = content.get("caller"), content.get("input")
        block.has_input = bool(given)
        block.signature = compact_json(caller) if caller and caller != _DIRECT else ""
        yield from self._called(block, {**block.content, "arguments": given or ""})

    def _input(self, block: _Block, piece: str) -> Iterator[Delta]:
        if block.kind == "tool_use" and not block.has_input:
            yield from self._called(block, {"arguments": piece})
        elif block.kind not in _STREAMED:
            self._count_buffered(len(piece))
            block.parts.append(piece)

    def _called(self, block: _Block, function: JsonMapping) -> Iterator[Delta]:
        fragment = {"index": block.call, "id": function.get("id"), "function": function}
        if calls := self._tools.feed([fragment], block=block.place, signature=block.signature):
            yield calls

    def _count_buffered(self, chars: int) -> None:
        """Count what is buffered until its block is complete, for progress."""
        self._text_chars += chars
        self._kept_chars += chars
        if self._kept_chars > KEPT_CHARS_MAX:
            raise failed(FailureClass.PROTOCOL, f"the blocks of a reply are over {KEPT_CHARS_MAX} characters")


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}
