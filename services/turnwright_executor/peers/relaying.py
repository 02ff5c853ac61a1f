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
from turnwright_executor.watching.plans import PLAN_EVENTS
from turnwright_executor.watching.tail import FellBehindError, MovedError, Tail, TailBounds
from turnwright_kit.logs import get_logger

_log = get_logger("relaying")

RelayKey = tuple[RunAddress, str, PlanEvents.ValueType]
"""A run, the address of its owner, and the form in which its watchers are told of plans."""

Upstream = Callable[[EventCursor], AsyncGenerator[WatchRunResponse, None]]
"""Opens a run's event stream after a cursor."""


class Relay(Tail):
    """The newest events of a run at another executor."""

    def __init__(self, after: EventCursor, bounds: TailBounds) -> None:
        super().__init__(bounds, after.epoch, after.seq)
        self.holders = 0
        self._unnumbered: list[WatchRunResponse] = []
        """What comes before the next event."""

    async def fill(self, events: AsyncGenerator[WatchRunResponse, None]) -> None:
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
            relay.start(relay.fill(upstream(position)), f"relay {key[0].run}").add_done_callback(_log_crash)
        relay.holders += 1
        try:
            yield relay
        finally:
            relay.holders -= 1
            if not relay.holders:
                if self._relays.get(key) is relay:
                    del self._relays[key]
                await relay.close()
