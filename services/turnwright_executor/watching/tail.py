"""The newest events of a run, bounded by count and bytes, and those who follow them.

A follower is only a position in the tail, so none can make it keep more.

Source: architecture 7 (the retained tail); rows RE01-RE08.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from operator import itemgetter
from typing import Final

from msgspec import Struct
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.types.v1.cursor_pb2 import EventCursor
from turnwright.types.v1.heartbeat_pb2 import Heartbeat

from turnwright_core.batching import heartbeat_due_s
from turnwright_core.limits import CHUNK_BYTES
from turnwright_executor.watching.events import as_one, in_batches
from turnwright_executor.watching.plans import PlanTeller
from turnwright_executor.watching.run_fold import set_now
from turnwright_kit.scope import detached

GATHER_S: Final = 0.01
"""Interval in which events are combined for watchers that take batches, in seconds."""


class Signal:
    """A condition variable."""

    def __init__(self) -> None:
        self._next: asyncio.Event | None = None

    def next(self) -> asyncio.Event:
        self._next = self._next or asyncio.Event()
        return self._next

    def notify(self) -> bool:
        """Wake the waiting; returns whether anybody was."""
        given, self._next = self._next, None
        if given:
            given.set()
        return given is not None


class GatheredSignal(Signal):
    """Wakes at most once in GATHER_S: a message costs many times what an event does."""

    def __init__(self) -> None:
        super().__init__()
        self._gathering: asyncio.TimerHandle | None = None
        self._has_more = False
        """Whether there was a change since the last wake-up."""

    def gather(self) -> None:
        """Wake the waiting. Changes that follow within GATHER_S wait for the next time."""
        if self._gathering is not None:
            self._has_more = True
        elif self.notify():
            self._gathering = asyncio.get_running_loop().call_later(GATHER_S, self._end_gathering)

    def _end_gathering(self) -> None:
        self._gathering = None
        if self._has_more:
            self._has_more = False
            self.gather()


class TailBounds(Struct, frozen=True):
    """Maximum number of events, and of their bytes."""

    events: int
    bytes_: int


class MovedError(Exception):
    """The run has moved to another executor; the watch continues there, after the last event that was sent."""


class FellBehindError(Exception):
    """The tail no longer has the events after a follower's position."""


class Tail:
    """Events with consecutive numbers within one epoch; the oldest are dropped first."""

    def __init__(self, bounds: TailBounds, epoch: str, seq: int = 0, *, heartbeat_s: float = 0.0) -> None:
        """Empty; the next event gets the number after `seq`. `heartbeat_s`: interval of its heartbeats; 0: none."""
        self.epoch = epoch
        self.seq = seq
        """Number of the newest event."""
        self.has_ended = False
        self._source: asyncio.Task[None] | None = None
        self._moves = 0
        self._cause: Exception | None = None
        self._followers = 0
        self._heartbeat = WatchRunResponse()
        """The latest: one timer wakes all followers, and those that have nothing else to get send it."""
        self._heartbeat_s = heartbeat_s
        self._beating: asyncio.TimerHandle | None = None
        self._changed = Signal()
        self._gathered = GatheredSignal()
        """The same for followers that take batches."""
        self._bounds = bounds
        self._kept: deque[tuple[int, tuple[WatchRunResponse, ...]]] = deque()
        self._bytes = 0
        self._batch: tuple[int, int, list[WatchRunResponse]] = (0, 0, [])
        """The batch made last: the position behind which it begins, the number it ends with, and its message."""

    @property
    def base(self) -> int:
        """The earliest position after which no event is missing."""
        return self.seq - len(self._kept)

    def cursor(self) -> EventCursor:
        """After the newest event."""
        return EventCursor(epoch=self.epoch, seq=self.seq)

    def covers(self, position: EventCursor) -> bool:
        """Whether everything after a position is available."""
        return not self.has_ended and position.epoch == self.epoch and position.seq >= self.base

    def add(self, event: WatchRunResponse, before: Sequence[WatchRunResponse] = ()) -> None:
        """Keep the next event, with those that come before it without a number."""
        self.seq += 1
        events = (*before, event)
        size = sum(one.ByteSize() for one in events)
        self._kept.append((size, events))
        self._bytes += size
        while len(self._kept) > self._bounds.events or self._bytes > self._bounds.bytes_:
            self._bytes -= self._kept.popleft()[0]

    def forget(self) -> None:
        """Drop everything, and leave a gap: nobody can resume from an earlier position."""
        self.seq += 1
        self._kept.clear()
        self._bytes = 0
        self._batch = (0, 0, [])

    def after(self, position: int, *, batched: bool = False) -> Iterable[WatchRunResponse]:
        """The events after a position, which must not be before the base. Costs their number, not the size of the tail.

        `batched`: in as few messages as possible. What fits into one message is built once for all watchers at this
        position.
        """
        if position == self.seq - 1 and self._kept and (not batched or len(self._kept[-1][1]) == 1):
            # Nearly always it is only the newest one, and for all watchers.
            return self._kept[-1][1]
        if batched and self._batch[:2] == (position, self.seq):
            return self._batch[2]
        newest = [*itertools.islice(reversed(self._kept), max(0, self.seq - position))][::-1]
        coming = [event for _, events in newest for event in events]
        if not batched:
            return coming
        if sum(map(itemgetter(0), newest)) > CHUNK_BYTES:
            return in_batches(coming)
        self._batch = (position, self.seq, [as_one(coming)] if coming else [])
        return self._batch[2]

    # Its source, and its end -----------------------------------------------------------------------------------

    def start(self, source: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Have a task add events until the tail is closed."""
        self._source = detached(source, name=name)
        return self._source

    async def close(self) -> None:
        self.end()
        if self._source:
            self._source.cancel()
            await asyncio.gather(self._source, return_exceptions=True)

    def end(self, cause: Exception | None = None) -> None:
        """Nothing more comes: the followers get the rest, then the cause is raised."""
        self.has_ended, self._cause = True, cause
        self.wake_at_once()

    # Followers ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the followers look; those that take batches not more often than events are combined."""
        self._changed.notify()
        self._gathered.gather()

    def wake_at_once(self) -> None:
        self._changed.notify()
        self._gathered.notify()

    def beat(self, heartbeat: WatchRunResponse) -> None:
        """Send a heartbeat to the followers that have nothing else to get."""
        self._heartbeat = heartbeat
        self.wake_at_once()

    def leave(self) -> None:
        """Have the followers leave: the run has moved."""
        self._moves += 1
        self.wake_at_once()

    async def follow(
        self,
        after: EventCursor,
        missed: Callable[[], Iterable[WatchRunResponse]] | None = None,
        teller: PlanTeller | None = None,
        *,
        batched: bool = False,
    ) -> AsyncGenerator[WatchRunResponse, None]:
        """The events after a position, which moves with them, until the end; heartbeats if there is nothing else.

        `missed` makes up for all events so far when the tail does not have those after the position. `batched`: pending
        events are combined into one message. Raises MovedError, what ended the tail, and FellBehindError without
        `missed`.
        """
        signal, moves = self._gathered if batched else self._changed, self._moves
        # A relay may be behind who comes from the owner itself.
        position = after.seq if missed is None or (self.covers(after) and after.seq <= self.seq) else -1
        async with self._followed():
            while position < self.seq or not self.has_ended:
                changed = signal.next()
                while position < self.base:
                    if missed is None:
                        raise FellBehindError
                    parts, position = missed(), self.seq
                    for part in parts:
                        yield part
                messages, newest = self.after(position, batched=batched), self.seq
                for message in teller.insert(messages, batched=batched) if teller else messages:
                    yield message
                position, heartbeat = max(position, newest), self._heartbeat
                after.epoch, after.seq = self.epoch, position
                if not self.has_ended:
                    await changed.wait()
                if self._moves != moves:
                    raise MovedError
                if self._heartbeat is not heartbeat and position >= self.seq:
                    yield self._heartbeat
            if self._cause:
                raise self._cause

    @contextlib.asynccontextmanager
    async def _followed(self) -> AsyncIterator[None]:
        """There is one more follower."""
        self._followers += 1
        if self._followers == 1 and self._heartbeat_s:
            self._schedule_beat()
        try:
            yield
        finally:
            self._followers -= 1
            if self._beating and not self._followers:
                self._beating.cancel()

    def _schedule_beat(self) -> None:
        loop = asyncio.get_running_loop()
        self._beating = loop.call_at(heartbeat_due_s(loop.time(), self._heartbeat_s), self._beat)

    def _beat(self) -> None:
        heartbeat = WatchRunResponse(cursor=self.cursor(), heartbeat=Heartbeat())
        set_now(heartbeat.time)
        self.beat(heartbeat)
        self._schedule_beat()
