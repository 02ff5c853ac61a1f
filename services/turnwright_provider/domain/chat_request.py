"""The body of a chat completion request, and how it gives way to servers that refuse a field of it.

    stream_options      unknown to older servers: left out, and there may be no usage
    temperature         fixed by OpenAI's reasoning models: left out
    max_tokens          renamed by OpenAI's reasoning models: max_completion_tokens
    thinking            the fields that ask for reasoning, which models without any refuse: left out

Each field gives way once, and the caller remembers for which models it did.
Source: research/wire 2.1, 2.4.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from turnwright_provider.domain.error_body import read_error_bytes
from turnwright_provider.domain.model_call import ModelCall

_NOTHING: Final[Mapping[str, object]] = {}

_WAYS_OUT: Final[dict[str, tuple[str, ...]]] = {
    "stream_options": ("stream_options", "include_usage"),
    "temperature": ("temperature",),
    "max_tokens": ("max_completion_tokens",),
    "thinking": ("reasoning", "thinking"),
}
"""Field -> the words by one of which a refusal names it."""

_REFUSALS: Final = ("unsupported", "not support", "unknown", "unrecognized", "unexpected", "extra", "not permitted",
                    "not allowed", "unknown_parameter", "invalid", "only", "instead")  # fmt: skip


def chat_body(call: ModelCall, without: AbstractSet[str], thinking: Mapping[str, object] = _NOTHING) -> bytes:
    """The JSON of a request, `without` the fields that the server refused; `thinking` asks for reasoning."""
    body: dict[str, Any] = {
        "model": call.model,
        "messages": [{"role": message.role.value, "content": message.content} for message in call.messages],
        "stream": True,
    }
    if "stream_options" not in without:
        body["stream_options"] = {"include_usage": True}
    if call.temperature is not None and "temperature" not in without:
        body["temperature"] = call.temperature
    if call.output_tokens_max is not None:
        body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = call.output_tokens_max
    if "thinking" not in without:
        body.update(thinking)
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def refused_field(
    status: int, answer: bytes, call: ModelCall, without: AbstractSet[str], thinking: Mapping[str, object] = _NOTHING
) -> str | None:
    """The field over which a server refused the request, if it may give way; None for any other refusal."""
    if status not in (400, 422):
        return None
    error = read_error_bytes(answer)
    words = f"{error.param} {error.code} {error.message}".lower()
    sent = {
        "stream_options": True,
        "temperature": call.temperature is not None,
        "max_tokens": bool(call.output_tokens_max),
        "thinking": bool(thinking),
    }
    if not any(refusal in words for refusal in _REFUSALS):
        return None
    for field, names in _WAYS_OUT.items():
        if sent[field] and field not in without and any(name in words for name in names):
            return field
    return None
