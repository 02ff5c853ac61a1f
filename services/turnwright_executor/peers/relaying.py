"""Relays: one stream of events from a run's owner for all watchers at this executor.

Theory of operation. A relay begins after an event that a watcher got from the owner itself, and keeps the newest events
as the owner's own tail does. A watcher is a position in it. A watcher whose position the relay does not have, because
it is new or was too slow, gets a stream of its own until it has reached a position of the relay. So snapshots, numbers
and bytes are always the owner's, and a relay needs to know nothing about a run but its newest events.
Source: architecture 7 (one upstream watch per run).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from turnwright.executor.v1.executor_service_pb2 import PlanEvents, WatchRunResponse
from turnwright.types.v1.cursor_pb2 import EventCursor

from turnwright_core.errors import TurnwrightError
from turnwright_core.wire.events import events_of
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.watching.hub import MovedError
from turnwright_executor.watching.plans import PLAN_EVENTS
from turnwright_executor.watching.signals import Signal
from turnwright_executor.watching.tail import Tail, TailBounds
from turnwright_kit.logs import get_logger

_log = get_logger("relaying")

RelayKey = tuple[RunAddress, str, PlanEvents.ValueType]
"""A run, the address of its owner, and the form in which its watchers are told of plans."""

Upstream = Callable[[EventCursor], AsyncGenerator[WatchRunResponse, None]]
"""Opens a run's event stream after a cursor."""


class FellBehindError(Exception):
    """The relay no longer has the events after a watcher's position."""


class Relay:
    """The newest events of a run at another executor, and its watchers."""

    def __init__(self, after: EventCursor, bounds: TailBounds) -> None:
        self.holders = 0
        self._epoch = after.epoch
        self._tail = Tail(bounds, after.seq)
        self._unnumbered: list[WatchRunResponse] = []
        """What comes before the next event."""
        self._heartbeat: WatchRunResponse | None = None
        self._changed = Signal()
        self._cause: Exception | None = None
        self._ended = False
        self._task: asyncio.Task[None] | None = None

    def covers(self, position: EventCursor) -> bool:
        """Whether everything after a position is available."""
        return not self._ended and position.epoch == self._epoch and position.seq >= self._tail.base

    @property
    def has_ended(self) -> bool:
        return self._ended

    def start(self, events: AsyncGenerator[WatchRunResponse, None], name: str) -> None:
        self._task = asyncio.create_task(self._run(events), name=name)
        self._task.add_done_callback(_log_crash)

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, events: AsyncGenerator[WatchRunResponse, None]) -> None:
        """Receive events until the stream ends; watchers get the reason."""
        try:
            async with contextlib.aclosing(events):
                async for message in events:
                    for event in events_of(message):
                        self._take(event)
        except (TurnwrightError, MovedError, FellBehindError) as error:
            self._cause = error
        finally:
            self._ended = True
            self._changed.notify()

    def _take(self, event: WatchRunResponse) -> None:
        if event.WhichOneof("event") == "heartbeat":
            self._heartbeat = event
        elif event.WhichOneof("event") in PLAN_EVENTS:
            self._unnumbered.append(event)
        elif event.cursor.epoch == self._epoch and event.cursor.seq == self._tail.seq + 1:
            self._tail.add(event, self._unnumbered)
            self._unnumbered = []
        else:
            # A snapshot means that the owner no longer has the events. Each watcher gets a stream of its own.
            raise FellBehindError
        self._changed.notify()

    async def watch(self, position: int, *, batched: bool = False) -> AsyncGenerator[WatchRunResponse, None]:
        """The events after a position until the owner's stream ends, with its heartbeats if there is nothing else.

        `batched`: pending events are combined into one message. Raises FellBehindError, and what ended the owner's
        stream.
        """
        heartbeat = self._heartbeat
        while True:
            changed = self._changed.next()
            if position < self._tail.base:
                raise FellBehindError
            for message in self._tail.after(position, batched=batched):
                yield message
                position = message.cursor.seq
            if position < self._tail.seq:
                continue
            if self._heartbeat is not heartbeat and self._heartbeat:
                heartbeat = self._heartbeat
                yield heartbeat
            elif self._ended:
                break
            else:
                await changed.wait()
        if self._cause:
            raise self._cause


def _log_crash(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error("relay_crashed", relay=task.get_name(), exc_info=error)


class Relays:
    """The relays with watchers; each ends with the last of its watchers."""

    def __init__(self, bounds: TailBounds) -> None:
        self._bounds = bounds
        self._relays: dict[RelayKey, Relay] = {}

    def can_join(self, key: RelayKey, position: EventCursor) -> bool:
        """Whether a relay can serve a position: an existing one, or a new one that begins there."""
        relay = self._relays.get(key)
        return relay is None or relay.has_ended or relay.covers(position)

    @contextlib.asynccontextmanager
    async def hold(self, key: RelayKey, position: EventCursor, upstream: Upstream) -> AsyncIterator[Relay]:
        """The relay of a run, kept during the block; created at the position if there is none."""
        relay = self._relays.get(key)
        if relay is None or relay.has_ended:
            relay = self._relays[key] = Relay(position, self._bounds)
            relay.start(upstream(position), f"relay {key[0].run}")
        relay.holders += 1
        try:
            yield relay
        finally:
            relay.holders -= 1
            if not relay.holders:
                if self._relays.get(key) is relay:
                    del self._relays[key]
                await relay.stop()
