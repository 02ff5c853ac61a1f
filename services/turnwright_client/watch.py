"""A watch that outlives its connection: reconnects with a growing pause and goes on after the last event it gave.

Source: architecture 7 (epoch and seq, resume from the retained tail or a snapshot, heartbeats).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeVar

from turnwright.executor.v1 import executor_service_pb2, proposal_pb2, task_pb2

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.values import frozen
from turnwright_core.wire.events import events_of

Event = executor_service_pb2.WatchRunResponse
InboxChange = proposal_pb2.WatchProposalsResponse
M = TypeVar("M")
OpenStream = Callable[[task_pb2.EventCursor | None], AsyncGenerator[Event, None]]
"""Opens the stream of events after a cursor."""

RECONNECT_AFTER: Final = frozenset(
    {Reason.SERVICE_UNAVAILABLE, Reason.DATABASE_UNAVAILABLE, Reason.DRAINING, Reason.LEASE_LOST}
)
"""Errors that a new connection may cure; after any other the same call fails again."""


@frozen
class WatchPolicy:
    """How a watch reconnects. The pause doubles from `backoff_s` to `backoff_s_max`; any event ends the count."""

    retries_max: int = 8
    backoff_s: float = 0.1
    backoff_s_max: float = 5.0
    silence_s_max: float = 60.0

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row, at least one."""
        return float(min(self.backoff_s_max, self.backoff_s * 2 ** min(failures - 1, 30)))


async def watch_events(
    open_stream: OpenStream, after: task_pb2.EventCursor | None, policy: WatchPolicy
) -> AsyncGenerator[Event, None]:
    """Every event after the cursor, over as many connections as it takes.

    Raises the last TurnwrightError when `retries_max` reconnects in a row brought nothing.
    """
    cursor, failures = after, 0
    while True:
        try:
            async with contextlib.aclosing(open_stream(cursor)) as stream:
                while True:
                    message = await _next(stream, policy.silence_s_max)
                    for event in events_of(message):
                        cursor, failures = resume_point(event, cursor), 0
                        yield event
        except TurnwrightError as error:
            cursor = _cursor_after(error, cursor)
            failures += 1
            if failures > policy.retries_max:
                raise
        await asyncio.sleep(policy.pause_s(failures))


async def watch_inbox(
    open_stream: Callable[[], AsyncGenerator[M, None]], policy: WatchPolicy
) -> AsyncGenerator[M, None]:
    """Every change of the inbox, or of a project's runs, over as many connections as it takes; each begins with all.

    Raises the last TurnwrightError when `retries_max` reconnects in a row brought nothing.
    """
    failures = 0
    while True:
        try:
            async with contextlib.aclosing(open_stream()) as stream:
                while True:
                    change = await _next(stream, policy.silence_s_max)
                    failures = 0
                    yield change
        except TurnwrightError as error:
            if error.reason not in RECONNECT_AFTER:
                raise
            failures += 1
            if failures > policy.retries_max:
                raise
        await asyncio.sleep(policy.pause_s(failures))


async def _next(stream: AsyncGenerator[M, None], silence_s_max: float) -> M:
    """The next event; an end and a silence are unavailability, because a watch ends by its reader only."""
    try:
        async with asyncio.timeout(silence_s_max):
            return await anext(stream)
    except StopAsyncIteration:
        raise fault(Reason.SERVICE_UNAVAILABLE, "The executor ended the watch.", service="executor") from None
    except TimeoutError:
        raise fault(
            Reason.SERVICE_UNAVAILABLE,
            f"The executor was silent for {silence_s_max:g} s, without a heartbeat.",
            service="executor",
        ) from None


def _cursor_after(error: TurnwrightError, cursor: task_pb2.EventCursor | None) -> task_pb2.EventCursor | None:
    """Where to go on after an error: at a snapshot when the cursor is foreign. Raises what a new try cannot cure."""
    if error.reason is Reason.CURSOR_FOREIGN and cursor is not None:
        return None
    if error.reason not in RECONNECT_AFTER:
        raise error
    return cursor


def resume_point(event: Event, before: task_pb2.EventCursor | None) -> task_pb2.EventCursor | None:
    """The cursor to resume from once this event was given out.

    Parts of a snapshot count at the last one: whoever resumed in the middle would never get the rest. A heartbeat
    moves nothing for the same reason.
    """
    kind = event.WhichOneof("event")
    if kind == "heartbeat" or (kind == "snapshot" and not event.snapshot.last):
        return before
    return event.cursor
