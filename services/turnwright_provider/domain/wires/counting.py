"""Token counting endpoints: the part of a request that they accept, and the field with the count.

    anthropic    POST /messages/count_tokens               input_tokens
    responses    POST /responses/input_tokens              input_tokens
    gemini       POST /models/{model}:countTokens          totalTokens

llama.cpp has Anthropic's endpoint, whatever its wire. Source: research/wire 2.2; the vendors' references.
"""

from __future__ import annotations

import json
from typing import Any, Final

from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.model_info import TOKENS_MAX
from turnwright_provider.domain.model_list import parse_json_body
from turnwright_provider.domain.wires.wire import Wire, WireRequest

_ANTHROPIC: Final = ("model", "messages", "system", "tools", "tool_choice", "thinking")
_RESPONSES: Final = (
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
)
_GEMINI: Final = ("contents", "systemInstruction", "tools", "toolConfig")


def count_request(wire: Wire, call: ModelCall, without: frozenset[str]) -> WireRequest | None:
    """The request that counts a call; None where the wire has no such endpoint."""
    if wire.name not in ("anthropic", "responses", "gemini"):
        return None
    request = wire.request(call, without)
    body: dict[str, Any] = json.loads(request.body)
    match wire.name:
        case "anthropic":
            path, payload = "/messages/count_tokens", _only(body, _ANTHROPIC)
        case "responses":
            path, payload = "/responses/input_tokens", _only(body, _RESPONSES)
        case _:
            path, payload = request.path.replace(":streamGenerateContent?alt=sse", ":countTokens"), _only(body, _GEMINI)
            if path.startswith("/models/"):
                # Vertex takes the fields as they are.
                payload = {"generateContentRequest": {"model": path[1:].removesuffix(":countTokens"), **payload}}
    return WireRequest(path, json.dumps(payload, ensure_ascii=False).encode())


def _only(body: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: body[name] for name in names if name in body}


def read_token_count(answer: bytes) -> int | None:
    body = parse_json_body(answer)
    if not isinstance(body, dict):
        return None
    tokens = body.get("input_tokens", body.get("totalTokens"))
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 < tokens < TOKENS_MAX else None
