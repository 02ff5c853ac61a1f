"""What each wire's servers send for a reply of many small pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat import ChatWire
from turnwright_provider.domain.wires.wire import Framing, Wire

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


STREAMS = {
    "chat": Stream(ChatWire(ThinkTags.LEADING), chat),
}
