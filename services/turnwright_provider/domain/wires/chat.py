"""OpenAI's chat completions, which most servers speak, and how a request gives way where a server refuses a field.

    stream_options      unknown to older servers: left out, and there may be no usage
    temperature         fixed by OpenAI's reasoning models: left out
    max_tokens          renamed by OpenAI's reasoning models: max_completion_tokens
    reasoning           the fields that ask for reasoning, which models without any refuse: left out

Each field gives way once, and the caller remembers for which models it did.
Source: research/wire 2.1, 2.4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from turnwright_provider.domain.model_call import Dropped, ModelCall
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat_reply import ChatFold
from turnwright_provider.domain.wires.extra import with_extra
from turnwright_provider.domain.wires.giving_way import named_in_refusal
from turnwright_provider.domain.wires.wire import Framing, WireRequest

_NOTHING: Final[Mapping[str, object]] = {}

_WAYS_OUT: Final[dict[str, tuple[str, ...]]] = {
    "stream_options": ("stream_options", "include_usage"),
    "temperature": ("temperature",),
    "max_tokens": ("max_completion_tokens",),
    "reasoning": ("reasoning", "thinking"),
}
"""Field -> the words by one of which a refusal names it."""


class ChatWire:
    """The wire of chat completions. `thinking` are the fields of a request that ask a model to reason."""

    name = "chat"
    framing = Framing.SSE
    models_path = "/models"

    def __init__(self, think_tags: ThinkTags, thinking: Mapping[str, object] = _NOTHING) -> None:
        self._think_tags = think_tags
        self._thinking = thinking

    def headers(self, api_key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {api_key}"} if api_key else {}

    def fold(self) -> ChatFold:
        return ChatFold(self._think_tags)

    def request(self, call: ModelCall, without: AbstractSet[str]) -> WireRequest:
        body: dict[str, Any] = {
            "model": call.model,
            "messages": [{"role": message.role.value, "content": message.text} for message in call.messages],
            "stream": True,
        }
        dropped: list[Dropped] = []
        if "stream_options" not in without:
            body["stream_options"] = {"include_usage": True}
        if call.temperature is not None and "temperature" not in without:
            body["temperature"] = call.temperature
        if call.output_tokens_max is not None:
            body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = call.output_tokens_max
        if "reasoning" not in without:
            body.update(self._thinking)
        encoded = json.dumps(with_extra(body, call.extra), ensure_ascii=False).encode("utf-8", "replace")
        return WireRequest("/chat/completions", encoded, dropped=tuple(dropped))

    def refused_field(self, status: int, answer: bytes, call: ModelCall, without: AbstractSet[str]) -> str | None:
        sent = {
            "stream_options": True,
            "temperature": call.temperature is not None,
            "max_tokens": bool(call.output_tokens_max),
            "reasoning": bool(self._thinking),
        }
        candidates = {field: words for field, words in _WAYS_OUT.items() if sent[field] and field not in without}
        return named_in_refusal(status, answer, candidates)
