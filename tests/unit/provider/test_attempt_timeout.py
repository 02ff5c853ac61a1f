"""How long a vendor is waited for, in a loop whose clock passes only while it sleeps."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

import pytest

from sse_server import delta
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat import ChatFold
from turnwright_provider.vendors.replies import AttemptTimeout


class _Jumps(selectors.SelectSelector):
    """Waits no time: tells how long it would have waited."""

    passed_s = 0.0

    def select(self, attempt: float | None = None) -> Any:
        self.passed_s += attempt or 0.0
        return super().select(0)


def in_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    selector = _Jumps()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.passed_s
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()


async def waited_s(attempt: AttemptTimeout) -> float:
    """How long a vendor that gives nothing is waited for."""
    clock = asyncio.get_running_loop().time
    begin_s = clock()
    with pytest.raises(VendorError) as raised:
        await attempt.wait(asyncio.Event().wait())
    assert raised.value.failure.kind is FailureClass.TIMEOUT
    return clock() - begin_s


def test_signs_of_life_count_for_the_first_token_only_up_to_twice_the_silence():
    async def test() -> None:
        attempt = AttemptTimeout(100)
        for _ in range(19):
            await attempt.wait(asyncio.sleep(10))
            attempt.note_progress(0)
        assert await waited_s(attempt) == pytest.approx(10)

    in_virtual_time(test())


def test_progress_gives_the_vendor_the_whole_silence_again():
    async def test() -> None:
        attempt = AttemptTimeout(100)
        for progress in range(1, 50):
            await attempt.wait(asyncio.sleep(99))
            attempt.note_progress(progress)
        await attempt.wait(asyncio.sleep(60))
        attempt.note_progress(49)
        assert await waited_s(attempt) == pytest.approx(40)

    in_virtual_time(test())


def test_time_that_the_caller_takes_is_not_the_vendors():
    async def test() -> None:
        attempt = AttemptTimeout(100)
        await attempt.wait(asyncio.sleep(1))
        attempt.note_progress(1)
        await asyncio.sleep(10_000)
        await attempt.wait(asyncio.sleep(99))

    in_virtual_time(test())


def test_a_timeout_of_something_else_stays_what_it_is():
    async def other() -> None:
        raise TimeoutError("another one")

    async def test() -> None:
        with pytest.raises(TimeoutError, match="another one"):
            await AttemptTimeout(100).wait(other())

    in_virtual_time(test())


def grows(before: list[dict[str, Any]], chunk: dict[str, Any]) -> bool:
    """Whether a chunk is progress, after these."""
    fold = ChatFold(ThinkTags.LEADING)
    for one in before:
        fold.chunk(one)
    progress = fold.progress
    fold.chunk(chunk)
    return fold.progress != progress


CALL = [delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": "get", "arguments": "x" * 10_000}}])]


@pytest.mark.parametrize(
    ("before", "chunk"),
    [
        ([], delta(content="word")),
        ([], delta(content="<thi")),
        ([], delta(content=[{"type": "thinking", "thinking": "hm"}])),
        ([], delta(reasoning="hm")),
        ([], delta(reasoning_content="hm")),
        ([], delta(reasoning_details=[{"text": "hm"}])),
        ([], delta(refusal="no")),
        ([], {"choices": [{"delta": {}, "message": {"content": "all"}}]}),
        ([], delta(finish="stop")),
        ([], CALL[0]),
        # Too little to be told by itself.
        (CALL, delta(tool_calls=[{"index": 0, "function": {"arguments": "y"}}])),
        (CALL, delta(tool_calls=[{"index": 1, "function": {"name": "sh"}}])),
    ],
)
def test_more_of_a_reply_is_progress(before, chunk):
    assert grows(before, chunk)


@pytest.mark.parametrize(
    ("before", "chunk"),
    [
        ([], delta(role="assistant", content="")),
        ([], delta(content=None, reasoning=None, tool_calls=None)),
        ([], {"choices": []}),
        ([], {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}),
        ([], {"choices": [{"index": 1, "delta": {"content": "another choice"}}]}),
        (CALL, delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": "get", "arguments": ""}}])),
        (CALL, delta(tool_calls=[{"index": 500, "function": {"name": "sh", "arguments": "too many"}}])),
        ([delta(content="a")], {"choices": [{"delta": {}, "message": {"content": "a"}}]}),
        ([delta(finish="stop")], delta(finish="stop")),
    ],
)
def test_what_adds_nothing_to_a_reply_is_no_progress(before, chunk):
    assert not grows(before, chunk)
