"""A reply that arrives all at once leaves the event loop to others: counted in its turns, never in time."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from turnwright_core.chat.deltas import AppendContent, AppendReasoning
from turnwright_provider.domain.failures import VendorError
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat import ChatFold
from turnwright_provider.vendors.replies import ASIDE_CHARS, DELTAS_MAX, AttemptTimeout, HttpReplyReader


class Arrived:
    """An answer that is there already."""

    status = 200

    def __init__(self, *pieces: bytes) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self._pieces = pieces

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        for piece in self._pieces:
            yield piece


def event(**chunk: Any) -> bytes:
    return b"data: %s\n\n" % json.dumps(chunk).encode()


def said(content: Any, finish: str | None = None) -> dict[str, Any]:
    return {"delta": {"content": content}, "finish_reason": finish}


async def deltas_by_turn(*pieces: bytes) -> Counter[int]:
    """How many increments were given in each turn of the loop; the first piece is read in turn 1."""
    turn = 0

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    counts: Counter[int] = Counter()
    working = asyncio.create_task(others())
    await asyncio.sleep(0)
    async for part in HttpReplyReader(1_000_000).read(
        Arrived(*pieces), ChatFold(ThinkTags.LEADING), AttemptTimeout(60)
    ):
        if isinstance(part, AppendContent):
            counts[turn] += 1
    working.cancel()
    return counts


@pytest.mark.asyncio
async def test_others_have_their_turn_among_the_deltas_of_one_event():
    counts = await deltas_by_turn(event(choices=[*[said("a")] * 2000, said("", "stop")]))

    assert counts.total() == 2000
    assert max(counts.values()) <= DELTAS_MAX


@pytest.mark.asyncio
async def test_a_long_event_is_read_beside_the_loop():
    assert min(await deltas_by_turn(event(choices=[said("short", "stop")]))) == 1
    assert min(await deltas_by_turn(event(choices=[said("x" * ASIDE_CHARS, "stop")]))) > 1


def test_parts_of_one_kind_are_one_delta():
    thought = {"type": "thinking", "thinking": "hm"}
    deltas = ChatFold(ThinkTags.LEADING).chunk(
        {"choices": [said([thought, thought, "a", {"text": "b"}, "c", thought])]}
    )

    assert deltas == [AppendReasoning("hmhm"), AppendContent("abc"), AppendReasoning("hm")]


@pytest.mark.asyncio
async def test_what_was_held_back_is_reported_where_a_stream_ends_without_its_end():
    cut = Arrived(event(choices=[said("<thin")]))
    events = HttpReplyReader(1_000_000).read(cut, ChatFold(ThinkTags.LEADING), AttemptTimeout(60))
    assert await anext(events) == AppendContent("<thin")
    with pytest.raises(VendorError, match="without a finish reason"):
        await anext(events)
