"""Where a stream ends: at its stop reason in every wire, whatever follows or is missing, and nowhere before."""

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from turnwright_values.provider import Finish

from turnwright_core.chat.deltas import AppendContent, SetUsage
from turnwright_provider.domain.failures import FailureClass, VendorError, failed
from turnwright_provider.domain.model_call import VendorEvent
from turnwright_provider.domain.wires.wire import Framing, wire_class
from turnwright_provider.vendors.replies import AttemptTimeout, HttpReplyReader

pytestmark = pytest.mark.asyncio

Event = dict[str, Any]

ENDS: dict[str, tuple[list[str], list[Event]]] = {
    "chat": (
        ["stop", "length", "tool_calls", "content_filter", "eos"],
        [
            {"choices": [{"delta": {"content": "Done."}}], "usage": {"prompt_tokens": 31, "completion_tokens": 5}},
            {"choices": [{"delta": {}, "finish_reason": "REASON"}]},
        ],
    ),
    "anthropic": (
        ["end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded"],
        [
            {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 31, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "REASON"}, "usage": {"output_tokens": 5}},
        ],
    ),
    "gemini": (
        ["STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "UNEXPECTED_TOOL_CALL"],
        [
            {"candidates": [{"content": {"parts": [{"text": "Done."}]}}], "usageMetadata": {"promptTokenCount": 31, "candidatesTokenCount": 5}},
            {"candidates": [{"finishReason": "REASON"}]},
        ],
    ),
    "ollama": (
        ["stop", "length"],
        [
            {"message": {"content": "Done."}, "done": False, "prompt_eval_count": 31, "eval_count": 5},
            {"message": {"content": ""}, "done_reason": "REASON"},
        ],
    ),
    "responses": (
        ["completed", "incomplete", "cancelled"],
        [
            {"type": "response.output_text.delta", "output_index": 0, "delta": "Done."},
            {"type": "response.done", "response": {"status": "REASON", "usage": {"input_tokens": 31, "output_tokens": 5}}},
        ],
    ),
}  # fmt: skip
"""Of each wire the stop reasons, and the events up to one, without what closes the stream."""

AFTER: dict[str, Any] = {
    "nothing": [],
    "a broken connection": [failed(FailureClass.SERVER, "the connection broke")],
    "silence": [failed(FailureClass.TIMEOUT, "waited")],
    "half an event": [b'data: {"type": "message_st'],
    "a gateway's page": [b"data: <html>Bad Gateway</html>\n\n"],
}


class Arriving:
    """An answer that arrives in pieces; a piece that is an error is raised."""

    status = 200

    def __init__(self, pieces: Sequence[bytes | VendorError]) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self._pieces = pieces

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        for piece in self._pieces:
            if isinstance(piece, VendorError):
                raise piece
            yield piece


def reason_in(event: Any, reason: str) -> Any:
    return json.loads(json.dumps(event).replace("REASON", reason))


async def read(wire: str, events: list[Event], after: list[bytes | VendorError]) -> list[VendorEvent]:
    made = wire_class(wire)()
    head = b"" if made.framing is Framing.LINES else b"data: "
    tail = b"\n" if made.framing is Framing.LINES else b"\n\n"
    pieces = [head + json.dumps(one).encode() + tail for one in events]
    if made.framing is Framing.LINES:
        after = [
            one if isinstance(one, VendorError) else one.rpartition(b"data: ")[2].replace(b"\n\n", b"\n")
            for one in after
        ]
    reader = HttpReplyReader(1_000_000, made.framing)
    return [one async for one in reader.read(Arriving([*pieces, *after]), made.fold(), AttemptTimeout(60))]


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize(("wire", "reason"), [(wire, one) for wire, (reasons, _) in ENDS.items() for one in reasons])
async def test_a_stop_reason_is_an_end_whatever_follows_it(wire, reason, after):
    parts = await read(wire, reason_in(ENDS[wire][1], reason), AFTER[after])
    assert "".join(one.text for one in parts if isinstance(one, AppendContent)) == "Done."
    assert isinstance(parts[-1], Finish)
    assert parts[-1].reason == reason
    assert parts[-1].usage
    assert (parts[-1].usage.prompt_tokens, parts[-1].usage.completion_tokens) == (31, 5)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("wire", ENDS)
async def test_a_stream_that_ends_before_a_stop_reason_fails(wire, after):
    with pytest.raises(VendorError) as raised:
        await read(wire, ENDS[wire][1][:-1], AFTER[after])
    assert raised.value.failure.kind is not FailureClass.INVALID
    assert raised.value.failure.is_retryable() or after in ("silence", "half an event")


@pytest.mark.parametrize("wire", [wire for wire in ENDS if wire != "responses"])
async def test_an_error_of_the_server_counts_behind_a_stop_reason_too(wire):
    # OpenRouter gives the reason with each piece
    with pytest.raises(VendorError):
        await read(wire, ENDS[wire][1], [b'data: {"error": {"message": "Token limit reached", "code": 400}}\n\n'])


@pytest.mark.parametrize("wire", [wire for wire in ENDS if wire != "responses"])
async def test_what_a_broken_reply_has_consumed_is_reported(wire):
    fold = wire_class(wire)().fold()
    for event in ENDS[wire][1][:-1]:
        fold.take(event)
    last = fold.break_off()[-1]
    assert isinstance(last, SetUsage)
    assert last.usage.prompt_tokens == 31


async def test_what_a_failed_response_has_consumed_is_reported():
    fold = wire_class("responses")().fold()
    last = {"type": "response.failed", "response": {"status": "failed", "usage": {"input_tokens": 31}}}
    with pytest.raises(VendorError):
        fold.take(last)
    assert [one.usage.prompt_tokens for one in fold.break_off() if isinstance(one, SetUsage)] == [31]


async def test_thinking_that_was_not_closed_is_kept_with_the_reply():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    events = [{"type": "content_block_start", "index": 0, "content_block": thinking}]
    fold = wire_class("anthropic")().fold()
    for event in [*events, {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}]:
        fold.take(event)
    assert [delta.blocks[0].signature for delta in fold.close() if hasattr(delta, "blocks")] == ["s"]
