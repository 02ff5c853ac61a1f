"""Ids, names and other words of a vendor are bounded where a reply is folded, before anything looks at them."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.steps import steps
from turnwright_values.provider import Finish

from turnwright_core.chat.deltas import SetToolCalls
from turnwright_core.limits import CALL_ID_CHARS_MAX
from turnwright_provider.domain.failures import HIDDEN_CHARS_MAX, Secrets, VendorError
from turnwright_provider.domain.model_call import VendorEvent
from turnwright_provider.domain.wires.wire import wire_class

Event = dict[str, Any]

REPLIES: dict[str, list[Event]] = {
    "chat": [
        {"id": "c", "object": "o", "model": "m", "choices": [{"delta": {"role": "assistant", "tool_calls": [
            {"index": 0, "id": "a", "type": "function", "function": {"name": "get", "arguments": "{}"}}]}}]},
        {"choices": [{"delta": {"reasoning_details": [{"type": "reasoning.text", "id": "r", "text": "t", "signature": "s"}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    ],
    "anthropic": [
        {"type": "message_start", "message": {"id": "m", "model": "m", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "get", "input": {}}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": "s"}},
        {"type": "message_stop"},
    ],
    "gemini": [
        {"modelVersion": "m", "responseId": "r", "candidates": [{"content": {"role": "model", "parts": [
            {"functionCall": {"id": "a", "name": "get", "args": {}}, "thoughtSignature": "s"}]}}]},
        {"candidates": [{"finishReason": "STOP", "finishMessage": "f"}]},
    ],
    "ollama": [
        {"model": "m", "message": {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "get", "arguments": {}}}]}},
        {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop"},
    ],
    "responses": [
        {"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "id": "f", "call_id": "c", "name": "get", "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "f", "delta": "{}"},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "function_call", "id": "f", "call_id": "c", "name": "get", "arguments": "{}"}},
        {"type": "response.output_item.done", "output_index": 1, "item": {"type": "reasoning", "id": "rs", "summary": []}},
        {"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}},
    ],
}  # fmt: skip

PIECES = ("x", "sk-", "a*b...", "é", "\ud800")


def fields(value: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The paths to all texts."""
    if isinstance(value, str):
        yield path
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield from fields(inner, *path, name)


FIELDS = [(wire, path) for wire, events in REPLIES.items() for path in fields(events)]


def with_text(events: list[Event], path: tuple[Any, ...], text: str) -> list[Event]:
    events = copy.deepcopy(events)
    holder: Any = events
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = text
    return events


def folded(wire: str, events: list[Event]) -> list[VendorEvent]:
    fold = wire_class(wire)().fold()
    try:
        return [*(delta for event in events for delta in fold.take(event)), *fold.close()]
    except VendorError:
        return []


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize(
    ("wire", "path"), FIELDS, ids=lambda one: one if isinstance(one, str) else ".".join(map(str, one))
)
def test_no_word_of_a_vendor_is_longer_than_its_limit(wire, path, piece):
    for event in folded(wire, with_text(REPLIES[wire], path, piece * (100_000 // len(piece)))):
        if isinstance(event, Finish):
            assert (len(event.reason) <= 64, len(event.vendor_model) <= 256) == (True, True)
        elif isinstance(event, SetToolCalls):
            assert all(len(call.id) <= CALL_ID_CHARS_MAX and len(call.name) <= 128 for call in event.calls)


@pytest.mark.parametrize(
    ("wire", "path"), FIELDS, ids=lambda one: one if isinstance(one, str) else ".".join(map(str, one))
)
def test_a_word_of_double_length_takes_no_more_steps(wire, path):
    once, twice = (with_text(REPLIES[wire], path, "x." * times) for times in (50_000, 100_000))
    assert steps(lambda: folded(wire, twice)) <= 1.1 * steps(lambda: folded(wire, once))


@pytest.mark.parametrize("piece", ["a", "*", "a*", "x", "secret-of-ours", "."])
def test_no_more_than_the_beginning_of_a_text_is_searched_for_secrets(piece):
    secrets = Secrets(["secret-of-ours"])
    once, twice = (piece * (times // len(piece)) for times in (400_000, 800_000))
    assert secrets.hide(once) == secrets.hide(twice)
    assert len(secrets.hide("a" * 400_000)) == HIDDEN_CHARS_MAX
    assert steps(lambda: secrets.hide(twice)) == steps(lambda: secrets.hide(once))


def test_calls_are_told_apart_by_what_is_kept_of_their_ids():
    names = [
        {"index": n, "id": f"{'x' * 200}{n}", "function": {"name": "get", "arguments": json.dumps({"n": n})}}
        for n in range(3)
    ]
    calls = [
        event
        for event in folded("chat", [{"choices": [{"delta": {"tool_calls": names}, "finish_reason": "stop"}]}])
        if isinstance(event, SetToolCalls)
    ]
    assert [call.id[-1] for call in calls[-1].calls] == ["0", "1", "2"]
