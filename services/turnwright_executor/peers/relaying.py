"""Relays: one stream of events from a run's owner for all watchers at this executor.

Theory of operation. A relay begins after an event that a watcher got from the owner itself, and keeps the newest events
as the owner's own tail does; its stream lasts as long as somebody follows it. A watcher whose position the relay does
not have, because it is new or was too slow, gets a stream of its own until it has reached a position of the relay. So
snapshots, numbers and bytes are always the owner's, and a relay needs to know nothing about a run but its newest
events.
Source: architecture 7 (one upstream watch per run).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from weakref import WeakValueDictionary

from turnwright.executor.v1.executor_service_pb2 import PlanEvents, ReplyForm, WatchRunResponse
from turnwright.types.v1.cursor_pb2 import EventCursor

from turnwright_core.errors import TurnwrightError
from turnwright_core.wire.run_view import events_of
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.watching.plans import PLAN_EVENTS
from turnwright_executor.watching.tail import FellBehindError, MovedError, Tail, TailBounds
from turnwright_kit.logs import get_logger

_log = get_logger("relaying")

RelayKey = tuple[RunAddress, str, PlanEvents.ValueType, ReplyForm.ValueType]
"""A run, the address of its owner, and the forms in which its watchers are told of plans and of replies."""

Upstream = Callable[[EventCursor], AsyncGenerator[WatchRunResponse, None]]
"""Opens a run's event stream after a cursor."""


class Relay(Tail):
    """The newest events of a run at another executor."""

    def __init__(self, run: str, after: EventCursor, bounds: TailBounds, upstream: Upstream) -> None:
        super().__init__(bounds, after.epoch, after.seq)
        self._run = run
        self._upstream = upstream
        self._unnumbered: list[WatchRunResponse] = []
        """What comes before the next event."""

    @contextlib.asynccontextmanager
    async def _followed(self) -> AsyncIterator[None]:
        if not self._followers:
            self.start(self._fill(self._upstream(self.cursor())), f"relay {self._run}").add_done_callback(_log_crash)
        try:
            async with super()._followed():
                yield
        finally:
            if not self._followers:
                await self.close()

    async def _fill(self, events: AsyncGenerator[WatchRunResponse, None]) -> None:
        """Receive events until the stream ends; watchers get the reason."""
        cause: Exception | None = None
        try:
            async with contextlib.aclosing(events):
                async for message in events:
                    for event in events_of(message):
                        self._take(event)
        except (TurnwrightError, MovedError, FellBehindError) as error:
            cause = error
        finally:
            self.end(cause)

    def _take(self, event: WatchRunResponse) -> None:
        if event.WhichOneof("event") == "heartbeat":
            self.beat(event)
        elif event.WhichOneof("event") in PLAN_EVENTS:
            self._unnumbered.append(event)
        elif (event.cursor.epoch, event.cursor.seq) == (self.epoch, self.seq + 1):
            self.add(event, self._unnumbered)
            self._unnumbered = []
            # The owner has combined events already.
            self.wake_at_once()
        else:
            # A snapshot means that the owner no longer has the events. Each watcher gets a stream of its own.
            raise FellBehindError


def _log_crash(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        _log.error("relay_crashed", relay=task.get_name(), exc_info=error)


class Relays:
    """The relays with followers."""

    def __init__(self, bounds: TailBounds) -> None:
        self._bounds = bounds
        self._relays: WeakValueDictionary[RelayKey, Relay] = WeakValueDictionary()

    def find(self, key: RelayKey, position: EventCursor, upstream: Upstream) -> Relay | None:
        """The relay of a run, a new one if there is none; None if it began after this position."""
        relay = self._relays.get(key)
        if relay is None or relay.has_ended:
            relay = self._relays[key] = Relay(key[0].run, position, self._bounds, upstream)
        return relay if relay.covers(position) else None
