"""The newest events of a run, bounded by count and bytes. A watcher is only a position in it.

Source: architecture 7 (the retained tail); rows RE01-RE08.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from operator import itemgetter

from msgspec import Struct
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse

from turnwright_core.limits import CHUNK_BYTES
from turnwright_executor.watching.events import as_one, in_batches


class TailBounds(Struct, frozen=True):
    """Maximum number of events, and of their bytes."""

    events: int
    bytes_: int


class Tail:
    """Events with consecutive numbers; the oldest are dropped first."""

    def __init__(self, bounds: TailBounds, seq: int = 0) -> None:
        """Empty; the next event gets the number after `seq`."""
        self.seq = seq
        """Number of the newest event."""
        self._bounds = bounds
        self._kept: deque[tuple[int, tuple[WatchRunResponse, ...]]] = deque()
        self._bytes = 0
        self._batch: tuple[int, int, list[WatchRunResponse]] = (0, 0, [])
        """The batch made last: the position behind which it begins, the number it ends with, and its message."""

    @property
    def base(self) -> int:
        """The earliest position after which no event is missing."""
        return self.seq - len(self._kept)

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
