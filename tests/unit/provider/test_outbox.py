"""What lies between the reading of a reply and its caller."""

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest

from turnwright_core.chat.deltas import AppendContent
from turnwright_provider.app.generate import FlowControl, ReplyStream, RetryClock
from turnwright_provider.app.outbox import Outbox
from turnwright_provider.domain.coalesce import DeltaBuffer
from turnwright_provider.domain.model_call import Finish, ModelCall, VendorEvent
from turnwright_provider.domain.retry import RetryPolicy

HOURS_S = 10_000.0
FINISH = Finish("stop", None, "tiny")


def outbox(flush_bytes: int = 10, bytes_max: int = 1000) -> Outbox:
    """One whose beat does not come within a test: its clock stands."""
    return Outbox(DeltaBuffer(HOURS_S, flush_bytes), bytes_max, clock=lambda: 0.0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.asyncio
@pytest.mark.parametrize("urge", ["full", "close"])
async def test_a_waiting_batch_goes_when_something_urgent_comes(urge):
    box = outbox()
    box.add(AppendContent("a"))
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
