"""Recorded replies with damage in them, the same for the same seed: what servers, proxies and cut connections do."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from turnwright_provider.domain.sse import EventReader, LineReader, SseReader
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.anthropic import AnthropicWire
from turnwright_provider.domain.wires.chat import ChatWire
from turnwright_provider.domain.wires.gemini import GeminiWire
from turnwright_provider.domain.wires.ollama import OllamaWire
from turnwright_provider.domain.wires.responses import ResponsesWire
from turnwright_provider.domain.wires.wire import Framing, Wire
from unit.provider.recorded import EVENT_BYTES_MAX, body_of, recorded

WIRES: dict[str, Wire] = {
    "openai.chat": ChatWire(ThinkTags.ANYWHERE),
    "openai.responses": ResponsesWire(),
    "anthropic.messages": AnthropicWire(),
    "gemini.generate": GeminiWire(),
    "ollama.chat": OllamaWire(ThinkTags.ANYWHERE),
}
EVENTS_MAX = 60
"""So many events of a long stream are kept: half from its start, half from its end."""

ODD: list[Any] = [
    None, True, False, 0, -1, 7, 10**30, -(10**30), 1.5, 1e300, "", "x", "\ud83d", "<think>", "null", [], {}, [None], [[]],
    {"x": None}, {"type": None}, "y" * 5000, [{"index": 10**12}], {"message": "no", "code": 500}, "function_call",
]  # fmt: skip
"""What may stand where something else is expected."""

STRAY = (
    {"error": {"message": "overloaded", "type": "overloaded_error"}},
    {"type": "error", "error": {"type": "api_error", "message": "gone"}},
    {"type": "message_start", "message": {"id": "other", "role": "assistant", "content": [], "usage": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_stop", "index": 99},
    {"choices": [{"index": 0, "delta": {}, "message": {"role": "assistant", "content": "beside"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": None, "function": {"arguments": None}}]}}]},
    {"choices": None}, {"choices": [None]}, {"choices": [{}]}, {"candidates": [{"content": None}]}, {"done": True}, {}, [],
    {"type": "response.output_text.delta", "delta": None}, {"type": "response.completed", "response": None},
)  # fmt: skip
"""Events of any vendor, where they do not belong."""


def replies(api: str) -> dict[str, dict[str, Any]]:
    """Every recorded answer of an API that is a reply."""
    return {name: case for name, case in recorded(api=api).items() if case["response"]["status"] == 200}


def reader_of(wire: Wire) -> EventReader:
    return (LineReader if wire.framing is Framing.LINES else SseReader)(EVENT_BYTES_MAX)


def damaged(case: dict[str, Any], wire: Wire, seed: int) -> bytes:
    """The body of a recorded reply, damaged one to three times."""
    chance = random.Random(f"{case['id']} {seed}")
    lines = body_of(case).decode("utf-8", "replace").splitlines()
    events = list(parsed(lines))
    if len(events) > EVENTS_MAX:
        events = [*events[: EVENTS_MAX // 2], *events[-EVENTS_MAX // 2 :]]
    for _ in range(chance.randint(1, 3)):
        events = chance.choice(_DAMAGE)(events, chance)
    body = b"".join(written(event, wire) for event in events)
    if chance.random() < 0.25:
        body = _bytes_damaged(body, chance)
    return body


def parsed(lines: list[str]) -> Iterator[Any]:
    """The JSON of each event; of a body in one piece that body."""
    texts = [line.removeprefix("data:").strip() for line in lines if line.startswith(("data:", "{"))]
    for text in texts or ["".join(lines)]:
        try:
            yield json.loads(text)
        except ValueError:
            continue


def written(event: Any, wire: Wire) -> bytes:
    text = json.dumps(event)
    if wire.framing is Framing.LINES:
        return text.encode() + b"\n"
    named = f"event: {event['type']}\n" if isinstance(event, dict) and isinstance(event.get("type"), str) else ""
    return f"{named}data: {text}\n\n".encode("utf-8", "replace")


def _bytes_damaged(body: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(body) + 1)
    return chance.choice([body[:at], body[:at] + bytes([chance.randrange(256)]) + body[at + 1 :], body[at:]])


Events = list[Any]


def _cut(events: Events, chance: random.Random) -> Events:
    return events[: chance.randrange(len(events) + 1)]


def _lost(events: Events, chance: random.Random) -> Events:
    return [event for event in events if chance.random() > 0.2]


def _twice(events: Events, chance: random.Random) -> Events:
    return [one for event in events for one in [event] * chance.choice((1, 1, 1, 2, 3))]


def _shuffled(events: Events, chance: random.Random) -> Events:
    mixed = list(events)
    chance.shuffle(mixed)
    return mixed


def _swapped(events: Events, chance: random.Random) -> Events:
    mixed = list(events)
    if len(mixed) > 1:
        at = chance.randrange(len(mixed) - 1)
        mixed[at], mixed[at + 1] = mixed[at + 1], mixed[at]
    return mixed


def _stray(events: Events, chance: random.Random) -> Events:
    at = chance.randrange(len(events) + 1)
    return [*events[:at], copy.deepcopy(chance.choice(STRAY)), *events[at:]]


def _odd(events: Events, chance: random.Random) -> Events:
    """A value somewhere in some of the events is another one, or its name is."""
    changed = json.loads(json.dumps(events))
    for _ in range(chance.choice((1, 1, 3, 10))):
        places = [place for event in changed for place in _places(event)]
        if not places:
            return [copy.deepcopy(chance.choice(ODD))]
        holder, key = chance.choice(places)
        if isinstance(holder, dict) and chance.random() < 0.15:
            holder[chance.choice(("x", "type", "error", "message", "index", ""))] = holder.pop(key)
        else:
            holder[key] = copy.deepcopy(chance.choice(ODD))
    return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


_DAMAGE: list[Callable[[Events, random.Random], Events]] = [
    _cut, _lost, _twice, _shuffled, _swapped, _stray, _odd, _odd, _odd,
]  # fmt: skip
