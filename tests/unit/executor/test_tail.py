"""The tail of a run's events by itself: what watchers at the same position share, and what is never held."""

from __future__ import annotations

from collections.abc import Iterable

from turnwright.executor.v1.event_pb2 import Notice
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.types.v1.cursor_pb2 import EventCursor

from turnwright_core.limits import CHUNK_BYTES
from turnwright_executor.watching.tail import Tail, TailBounds


def tail_of(*texts: str) -> Tail:
    tail = Tail(TailBounds(100, 100 * CHUNK_BYTES), "e")
    for text in texts:
        add(tail, text)
    return tail


def add(tail: Tail, text: str) -> None:
    tail.add(WatchRunResponse(cursor=EventCursor(epoch="e", seq=tail.seq + 1), notice=Notice(text=text)))


def texts(messages: Iterable[WatchRunResponse]) -> list[str]:
    return [event.notice.text for message in messages for event in (message.batch.events or [message])]


def test_watchers_at_one_position_share_one_message_and_others_get_their_own() -> None:
    tail = tail_of("1", "2", "3")
    [first], [second], [behind] = (tail.after(position, batched=True) for position in (1, 1, 0))
    assert first is second
    assert (texts([first]), texts([behind])) == (["2", "3"], ["1", "2", "3"])


def test_a_shared_message_is_not_reported_again_when_there_is_more() -> None:
    tail = tail_of("1", "2")
    assert texts(tail.after(0, batched=True)) == ["1", "2"]
    add(tail, "3")
    assert texts(tail.after(0, batched=True)) == ["1", "2", "3"]
    assert texts(tail.after(2, batched=True)) == ["3"]
    tail.forget()
    add(tail, "5")
    assert texts(tail.after(tail.base, batched=True)) == ["5"]


def test_what_takes_several_messages_is_built_as_it_is_sent() -> None:
    long = "x" * (CHUNK_BYTES // 2)
    tail = tail_of(long, long, long)
    first, second = tail.after(0, batched=True), tail.after(0, batched=True)
    assert iter(first) is first
    assert texts(first) == texts(second) == texts(tail.after(0)) == [long] * 3


def test_nobody_is_told_anything_who_has_heard_all() -> None:
    tail = tail_of("1")
    assert [*tail.after(1, batched=True), *tail.after(2, batched=True), *tail.after(1)] == []
