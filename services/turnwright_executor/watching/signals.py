"""Condition variables: each wakes all tasks that wait for the next change, and costs nothing if there are none."""

from __future__ import annotations

import asyncio
from typing import Final

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
