"""Recorded replies of Gemini and of Ollama's own interface: how they are folded, and what they say."""

import json
from collections.abc import Iterable
from typing import Any

from turnwright_values.types import Usage

from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.gemini import GeminiWire
from turnwright_provider.domain.wires.ollama import OllamaWire
from turnwright_provider.domain.wires.wire import Wire
from unit.provider.damaged_replies import reader_of
from unit.provider.recorded import Message, body_of, folded, folded_whole, recorded

WIRES: dict[str, Wire] = {"gemini.generate": GeminiWire(), "ollama.chat": OllamaWire(ThinkTags.ANYWHERE)}

CASES = {case_id: case for api in WIRES for case_id, case in recorded(api=api).items()}
OK = {i: case for i, case in CASES.items() if case["response"]["status"] == 200 and "expected_text" in case}
STREAMS = {i: case for i, case in OK.items() if "stream" in case["tags"]}
BODIES = {i: case for i, case in OK.items() if i not in STREAMS}


def wire_of(case: dict[str, Any]) -> Wire:
    return WIRES[case["api"]]


def folded_by(wire: Wire, chunks: Iterable[bytes]) -> Message:
    """The message of a stream that arrives in these chunks. Raises VendorError."""
    return folded(chunks, wire.fold(), reader_of(wire))


def reply_of(case: dict[str, Any]) -> Message:
    """The message of a recorded response, streamed or not. Raises VendorError."""
    if case["id"] in STREAMS:
        return folded_by(wire_of(case), [body_of(case)])
    return folded_whole(body_of(case), wire_of(case).fold())


def told(message: Message) -> dict[str, Any]:
    """What of a message the cases speak of."""
    return {
        "text": message.text,
        "reasoning": message.reasoning,
        "calls": [(call["id"], call["name"], json.loads(call["arguments"])) for call in message.tool_calls],
        "usage": message.usage,
        "finish": message.finish,
    }


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """What a case says, in our terms."""
    calls = case["expected_tool_calls"]
    # Vertex says it by number where it was asked to.
    finish = {1: "STOP", 2: "MAX_TOKENS"}.get(case["expected_finish_reason"], case["expected_finish_reason"])
    return {
        "text": case["expected_text"],
        "reasoning": case["expected_reasoning"] or "",
        "calls": [(call["id"] or "", call["name"], json.loads(call["arguments"])) for call in calls],
        "usage": _usage(case["expected_usage"], case["expected_usage_raw"] or {}),
        "finish": finish,
    }


def _usage(figures: dict[str, Any] | None, raw: dict[str, Any]) -> Usage | None:
    if figures is None:
        return None
    prompt = (figures["input_tokens"] or 0) + (raw.get("toolUsePromptTokenCount") or 0)
    completion = figures["output_tokens"] or 0
    cached, reasoning = figures["cached_input_tokens"] or 0, figures["reasoning_tokens"] or 0
    return Usage(prompt, cached, completion, reasoning, prompt + completion)
