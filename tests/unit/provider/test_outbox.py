"""What lies between the reading of a reply and its caller."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright_values.provider import Finish
from turnwright_values.replies import ToolCall
from turnwright_values.types import Usage

from turnwright_core.chat.deltas import AppendContent, AppendReasoning, SetToolCalls, SetUsage
from turnwright_provider.app.generate import ReplyStream, RetryClock
from turnwright_provider.app.outbox import TEXT_CHARS_MAX, FlowControl, Outbox
from turnwright_provider.domain.model_call import ModelCall, VendorEvent
from turnwright_provider.domain.retry import RetryPolicy

HOURS_S = 10_000.0
FINISH = Finish("stop", None, "tiny")


class Clock:
    """A clock that stands."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def outbox(flush_bytes: int = 10, bytes_max: int = 1000, clock: Clock | None = None) -> Outbox:
    """One whose beat does not come within a test."""
    return Outbox(FlowControl(HOURS_S, flush_bytes, bytes_max), clock or Clock())


async def taken(box: Outbox) -> list[Any]:
    box.close()
    return list(await box.take())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.asyncio
@pytest.mark.parametrize("urge", ["full", "close"])
async def test_a_waiting_batch_goes_when_something_urgent_comes(urge):
    clock = Clock()
    box = outbox(clock=clock)
    box.add(AppendContent("a"))
    clock.now_s += HOURS_S
    assert await box.take() == [AppendContent("a")]
    following = asyncio.ensure_future(box.take())
    box.add(AppendContent("b"))
    await settle()
    assert not following.done()

    match urge:
        case "full":
            box.add(AppendContent("c" * 10))
        case "close":
            box.close()

    assert await following == [AppendContent("b" + "c" * 10 * (urge == "full"))]


@pytest.mark.asyncio
async def test_everything_comes_in_order_and_then_the_end():
    box = outbox()
    box.add(AppendContent("a"))
    box.end(FINISH)
    box.close()

    assert await box.take() == [AppendContent("a"), FINISH]
    assert not await box.take()


@pytest.mark.asyncio
async def test_an_outbox_that_is_closed_empty_ends():
    box = outbox()
    box.close()
    assert not await box.take()


@pytest.mark.asyncio
async def test_of_calls_and_usage_only_the_newest_is_kept_and_texts_stay_in_order():
    box = outbox(1024)
    tools = [SetToolCalls((ToolCall("f", arguments, 0, "a"),)) for arguments in ("", "{}")]
    usages = [SetUsage(Usage(n, 0, 0, 0, n)) for n in (1, 2)]
    for delta in (tools[0], AppendReasoning("r"), usages[0], AppendContent("a"), AppendContent("b"), tools[1], AppendReasoning("s"), usages[1]):  # fmt: skip
        box.add(delta)
    assert await taken(box) == [AppendReasoning("r"), AppendContent("ab"), AppendReasoning("s"), tools[1], usages[1]]


@pytest.mark.asyncio
async def test_the_end_replaces_the_usage_before_it():
    box = outbox()
    finish = Finish("stop", Usage(2, 0, 0, 0, 2), "tiny")
    box.add(SetUsage(Usage(1, 0, 0, 0, 1)))
    box.end(finish)
    assert await taken(box) == [finish]


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=5), st.booleans()), max_size=40))
def test_joined_texts_concatenate_to_what_was_put(puts):
    async def all_taken():
        box, parts = outbox(0), []
        for is_content, text, take in puts:
            box.add(AppendContent(text) if is_content else AppendReasoning(text))
            parts += await box.take() if take else []
        return parts + await taken(box)

    parts = asyncio.run(all_taken())
    for kind, wanted in ((AppendContent, True), (AppendReasoning, False)):
        texts = [delta.text for delta in parts if isinstance(delta, kind)]
        assert "".join(texts) == "".join(text for is_content, text, _ in puts if is_content is wanted)


@pytest.mark.asyncio
async def test_a_huge_text_is_cut():
    box = outbox()
    box.add(AppendContent("x" * (TEXT_CHARS_MAX + 1)))
    assert [len(delta.text) for delta in await taken(box)] == [TEXT_CHARS_MAX, 1]


@pytest.mark.asyncio
async def test_a_caller_who_does_not_read_stops_the_producer():
    box = outbox(bytes_max=20)
    assert box.add(AppendContent("x" * 15))
    assert not box.add(AppendContent("x" * 10))
    waiting = asyncio.ensure_future(box.wait_for_room())
    await settle()
    assert not waiting.done()

    assert await box.take() == [AppendContent("x" * 25)]
    await waiting


class Talking:
    """A vendor whose words are there all at once."""

    async def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        yield AppendContent("a")
        yield AppendContent("b")
        yield FINISH


@pytest.mark.asyncio
async def test_the_first_delta_is_sent_before_there_is_more_to_do():
    clock = RetryClock(time.monotonic, asyncio.sleep, lambda: 0.0)
    reply = ReplyStream("v", Talking(), RetryPolicy(), FlowControl(0.0, 10), clock)
    tasks_when_sent: list[int] = []
    parts = []
    async for part in reply.parts(ModelCall("m", ())):
        parts.append(part)
        # As a transport does: the next task sends it.
        asyncio.get_running_loop().call_soon(lambda: tasks_when_sent.append(len(asyncio.all_tasks())))

    assert parts == [AppendContent("a"), AppendContent("b"), FINISH]
    assert tasks_when_sent[0] == len(asyncio.all_tasks())
