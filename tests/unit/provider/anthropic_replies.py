"""Replies of Anthropic's Messages as tests look at them: folded by the project, and put together by the letter."""

import json
from collections.abc import Iterable
from typing import Any

from turnwright_values.provider import Finish

from turnwright_core.chat.message import Message
from turnwright_core.chat.reply import PartialReply
from turnwright_core.json_text import parse_json
from turnwright_provider.domain.model_call import VendorEvent
from turnwright_provider.domain.sse import SseReader
from turnwright_provider.domain.wires.anthropic_reply import AnthropicFold
from turnwright_provider.domain.wires.blocks import object_in
from unit.provider.recorded import EVENT_BYTES_MAX, body_of

MODEL = "anthropic/m"


def events_of(chunks: Iterable[bytes]) -> list[VendorEvent]:
    """What the fold makes of a stream that arrives in these chunks. Raises VendorError."""
    reader, fold = SseReader(EVENT_BYTES_MAX), AnthropicFold()
    deltas: list[VendorEvent] = [d for chunk in chunks for event in reader.feed(chunk) for d in fold.event(event)]
    deltas += [d for event in reader.end() for d in fold.event(event)]
    return [*deltas, *fold.close()]


def events_of_body(body: Any) -> list[VendorEvent]:
    """The same of a whole JSON body."""
    fold = AnthropicFold()
    return [*fold.whole(body), *fold.close()]


def collected(events: Iterable[VendorEvent]) -> tuple[Message, Finish]:
    """The message that a caller has in the end. The finish tells the usage that the deltas told."""
    reply, finish = PartialReply(), None
    for event in events:
        assert finish is None, "nothing follows the end"
        if isinstance(event, Finish):
            finish = event
        else:
            reply.add(event)
    assert finish is not None
    assert finish.usage is None or finish.usage == reply.usage
    return reply.message(MODEL), finish


def folded(case: dict[str, Any], chunks: Iterable[bytes] | None = None) -> tuple[Message, Finish]:
    """The message of a recorded response."""
    if is_stream(case):
        return collected(events_of([body_of(case)] if chunks is None else chunks))
    return collected(events_of_body(parse_json(body_of(case).decode())))


def is_message(case: dict[str, Any]) -> bool:
    """Whether a message was asked for: the same folder of paths counts tokens and keeps batches."""
    return not any(word in case["request"]["url"] for word in ("count_tokens", "batches"))


def is_stream(case: dict[str, Any]) -> bool:
    return not body_of(case).lstrip().startswith(b"{")


def content_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a response as it wrote them, without any of the project's code."""
    if not is_stream(case):
        found: list[dict[str, Any]] = json.loads(body_of(case))["content"]
        return found
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for line in body_of(case).decode("utf-8-sig").split("\n"):
        if not line.startswith("data:"):
            continue
        event = json.loads(line[5:])
        if event["type"] == "content_block_start":
            blocks[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta":
            _grow(blocks[event["index"]], inputs, event["index"], event["delta"])
    for index, text in inputs.items():
        blocks[index]["input"] = object_in(text)
    return [block for _, block in sorted(blocks.items())]


def _grow(block: dict[str, Any], inputs: dict[int, str], index: int, delta: dict[str, Any]) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "input_json_delta":
            inputs[index] = inputs.get(index, "") + delta["partial_json"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        case "compaction_delta":
            block.update({key: value for key, value in delta.items() if key != "type"})
