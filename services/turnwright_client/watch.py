"""A watch that outlives its connection: reconnects with a growing pause and goes on after the last event it gave.

Source: architecture 7 (epoch and seq, resume from the retained tail or a snapshot, heartbeats).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeVar

from msgspec import Struct
from turnwright.executor.v1 import proposal_pb2, task_pb2

from turnwright_client.fold import Event
from turnwright_core.backoff import Backoff
from turnwright_core.errors import ANSWERED, Reason, TurnwrightError, fault
from turnwright_core.kit.errors import is_of_transport
from turnwright_core.wire.events import events_of

InboxChange = proposal_pb2.WatchProposalsResponse
M = TypeVar("M")
OpenStream = Callable[[task_pb2.EventCursor | None], AsyncGenerator[Event, None]]
"""Opens the stream of events after a cursor."""

RECONNECT_AFTER: Final = frozenset(
    {Reason.SERVICE_UNAVAILABLE, Reason.DATABASE_UNAVAILABLE, Reason.DRAINING, Reason.LEASE_LOST}
)
"""Errors of a service that a new connection may cure; after any other the same call fails again."""


class WatchPolicy(Struct, frozen=True):
    """How a watch reconnects. The pause doubles from `backoff_s` to `backoff_s_max`; any event ends the count.

    `retries_max` counts connections in a row on which no executor answered: one whose idle connections a proxy ends is
    there all the same.
    """

    retries_max: int = 8
    backoff_s: float = 0.1
    backoff_s_max: float = 5.0
    silence_s_max: float = 60.0

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row, at least one."""
        return Backoff(self.backoff_s, self.backoff_s_max).pause_s(failures)


class _Failures:
    """Connections of a watch that were lost since it last heard anything."""

    def __init__(self, policy: WatchPolicy) -> None:
        self._policy = policy
        self._all = 0
        self._unanswered = 0

    def heard(self) -> None:
        self._all = self._unanswered = 0

    def add(self, error: TurnwrightError) -> float:
        """Seconds to wait before the next try. Raises the error where no try can cure it, or none did."""
        if error.reason not in RECONNECT_AFTER and not is_of_transport(error):
            raise error
        self._all += 1
        self._unanswered = 0 if ANSWERED in error.metadata else self._unanswered + 1
        if self._unanswered > self._policy.retries_max:
            raise error
        return self._policy.pause_s(self._all)


async def watch_events(
    open_stream: OpenStream, after: task_pb2.EventCursor | None, policy: WatchPolicy
) -> AsyncGenerator[Event, None]:
    """Every event after the cursor, over as many connections as it takes.

    Raises the last TurnwrightError when no executor answered to `retries_max` reconnects in a row.
    """
    cursor, failures = after, _Failures(policy)
    while True:
        try:
            async with contextlib.aclosing(open_stream(cursor)) as stream:
                while True:
                    message = await _next(stream, policy.silence_s_max)
                    failures.heard()
                    for event in events_of(message):
                        cursor = resume_point(event, cursor)
                        yield event
        except TurnwrightError as error:
            if error.reason is Reason.CURSOR_FOREIGN and cursor is not None:
                # A snapshot then: there is nothing to wait for.
                cursor = None
                continue
            pause_s = failures.add(error)
        await asyncio.sleep(pause_s)


async def watch_inbox(
    open_stream: Callable[[], AsyncGenerator[M, None]], policy: WatchPolicy
) -> AsyncGenerator[M, None]:
    """Every change of the inbox, or of a project's runs, over as many connections as it takes; each begins with all.

    Raises the last TurnwrightError when no executor answered to `retries_max` reconnects in a row.
    """
    failures = _Failures(policy)
    while True:
        try:
            async with contextlib.aclosing(open_stream()) as stream:
                while True:
                    change = await _next(stream, policy.silence_s_max)
                    failures.heard()
                    yield change
        except TurnwrightError as error:
            pause_s = failures.add(error)
        await asyncio.sleep(pause_s)


async def _next(stream: AsyncGenerator[M, None], silence_s_max: float) -> M:
    """The next event; an end and a silence are unavailability, because a watch ends by its reader only."""
    try:
        async with asyncio.timeout(silence_s_max):
            return await anext(stream)
    except StopAsyncIteration:
        told = {"service": "executor", ANSWERED: ""}
        raise fault(Reason.SERVICE_UNAVAILABLE, "The executor ended the watch.", **told) from None
    except TimeoutError:
        raise fault(
            Reason.SERVICE_UNAVAILABLE,
            f"The executor was silent for {silence_s_max:g} s, without a heartbeat.",
            service="executor",
        ) from None


def resume_point(event: Event, before: task_pb2.EventCursor | None) -> task_pb2.EventCursor | None:
    """The cursor to resume from once this event was given out.

    Parts of a snapshot count at the last one: whoever resumed in the middle would never get the rest. A heartbeat
    moves nothing for the same reason.
    """
    kind = event.WhichOneof("event")
    if kind == "heartbeat" or (kind == "snapshot" and not event.snapshot.last):
        return before
    return event.cursor
