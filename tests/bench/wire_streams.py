"""What each wire's servers send for a reply of many small pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnwright_provider.domain.presets import WIRES
from turnwright_provider.domain.wires.wire import Framing, Wire, wire_class

PIECE = "a few words of it "


@dataclass(frozen=True)
class Stream:
    """A wire, and the objects of a stream with so many pieces of text."""

    wire: Wire
    reply: Callable[[int], list[dict[str, Any]]]

    def chunks(self, pieces: int) -> list[str]:
        """As they are sent, one event each."""
        return [self._framed(each) for each in self.reply(pieces)]

    @property
    def content_type(self) -> str:
        return "text/event-stream" if self.wire.framing is Framing.SSE else "application/x-ndjson"

    def _framed(self, each: dict[str, Any]) -> str:
        text = json.dumps(each, separators=(",", ":"))
        if self.wire.framing is Framing.LINES:
            return f"{text}\n"
        return f"event: {each['type']}\ndata: {text}\n\n" if "type" in each else f"data: {text}\n\n"


def chat(pieces: int) -> list[dict[str, Any]]:
    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    usage = {"prompt_tokens": 10, "completion_tokens": pieces, "total_tokens": 10 + pieces}
    last = {**chunk({}), "choices": [], "usage": usage}
    return [chunk({"role": "assistant"}), *[chunk({"content": PIECE})] * pieces, chunk({}, "stop"), last]


def responses(pieces: int) -> list[dict[str, Any]]:
    response = {"id": "resp_1", "object": "response", "model": "m", "status": "in_progress", "output": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    where = {"item_id": "msg_1", "output_index": 0}
    usage = {"input_tokens": 10, "output_tokens": pieces, "total_tokens": 10 + pieces}
    text = PIECE * pieces
    whole = {**message, "status": "completed", "content": [{**part, "text": text}]}
    delta = {"type": "response.output_text.delta", **where, "content_index": 0, "delta": PIECE}
    return [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": message},
        {"type": "response.content_part.added", **where, "content_index": 0, "part": part},
        *[delta] * pieces,
        {"type": "response.output_text.done", **where, "content_index": 0, "text": text},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [whole], "usage": usage},
        },
    ]


def anthropic(pieces: int) -> list[dict[str, Any]]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 10, "output_tokens": 1}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": PIECE}}
    return [
        {"type": "message_start", "message": {**message, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[delta] * pieces,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": pieces}},
        {"type": "message_stop"},
    ]


def gemini(pieces: int) -> list[dict[str, Any]]:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 1, "totalTokenCount": 11}

    def chunk(text: str, **more: Any) -> dict[str, Any]:
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **more}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"}

    return [*[chunk(PIECE)] * (pieces - 1), chunk(PIECE, finishReason="STOP")]


def ollama(pieces: int) -> list[dict[str, Any]]:
    head = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    piece = {**head, "message": {"role": "assistant", "content": PIECE}, "done": False}
    counts = {"prompt_eval_count": 10, "eval_count": pieces}
    end = {**head, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", **counts}
    return [*[piece] * pieces, end]


REPLIES = {"chat": chat, "responses": responses, "anthropic": anthropic, "gemini": gemini, "ollama": ollama}
STREAMS = {name: Stream(wire_class(name)(), REPLIES[name]) for name in WIRES}
