"""A watch that survives lost connections: it reconnects with exponential backoff and resumes after the last event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, TypeVar

from msgspec import Struct
from turnwright.proposals.v1 import proposal_service_pb2
from turnwright.types.v1 import cursor_pb2

from turnwright_core.backoff import Backoff
from turnwright_core.errors import ANSWERED, Reason, TurnwrightError, fault
from turnwright_core.rpc.errors import is_of_transport
from turnwright_core.wire.run_view import Event, events_of

InboxChange = proposal_service_pb2.WatchProposalsResponse
M = TypeVar("M")
Opened = contextlib.AbstractAsyncContextManager[AsyncIterator[M]]
OpenStream = Callable[[cursor_pb2.EventCursor | None], Opened[Event]]
"""Opens the stream of events after a cursor."""
Lost = Callable[[TurnwrightError], None]
"""Told from the second failure in a row on that the connection is lost; it is tried again."""

RECONNECT_AFTER: Final = frozenset(
    {Reason.SERVICE_UNAVAILABLE, Reason.DATABASE_UNAVAILABLE, Reason.DRAINING, Reason.LEASE_LOST}
)
"""Errors of a service that may go away with a new connection; after any other the same call would fail again."""


class WatchPolicy(Struct, frozen=True):
    """How a watch reconnects: exponential backoff from `backoff_s` to `backoff_s_max`, reset by any event.

    `retries_max` limits consecutive connections on which no executor answered. Connections that a proxy closes as idle
    do not count: an executor did answer.
    """

    retries_max: int = 8
    backoff_s: float = 0.1
    backoff_s_max: float = 5.0
    silence_s_max: float = 60.0

    def pause_s(self, failures: int) -> float:
        """Pause in seconds after this many consecutive failures, at least one."""
        return Backoff(self.backoff_s, self.backoff_s_max).pause_s(failures)


class _Failures:
    """Connections lost since the watch last received anything."""

    def __init__(self, policy: WatchPolicy, lost: Lost | None = None) -> None:
        self._policy = policy
        self._lost = lost
        self._all = 0
        self._unanswered = 0

    def reset(self) -> None:
        self._all = self._unanswered = 0

    def add(self, error: TurnwrightError) -> float:
        """The pause in seconds before the next attempt. Raises the error if retrying cannot help, or did not."""
        if error.reason not in RECONNECT_AFTER and not is_of_transport(error):
            raise error
        self._all += 1
        self._unanswered = 0 if ANSWERED in error.metadata else self._unanswered + 1
        if self._unanswered > self._policy.retries_max:
            raise error
        if self._lost is not None and self._all > 1:
            self._lost(error)
        return self._policy.pause_s(self._all)


async def watch_events(
    open_stream: OpenStream, after: cursor_pb2.EventCursor | None, policy: WatchPolicy, lost: Lost | None = None
) -> AsyncGenerator[Event, None]:
    """Events after the cursor, over as many connections as necessary.

    Raises the last TurnwrightError if no executor answered `retries_max` consecutive reconnects.
    """
    cursor, failures = after, _Failures(policy, lost)
    while True:
        try:
            async with open_stream(cursor) as stream:
                while True:
                    message = await _next(stream, policy.silence_s_max)
                    failures.reset()
                    for event in events_of(message):
                        if is_behind_a_gap(event, cursor):
                            cursor = None
                            raise _gap(event)
                        cursor = resume_point(event, cursor)
                        yield event
        except TurnwrightError as error:
            if error.reason is Reason.CURSOR_FOREIGN and cursor is not None:
                # There will be a snapshot, so there is nothing to wait for.
                cursor = None
                continue
            pause_s = failures.add(error)
        await asyncio.sleep(pause_s)


async def watch_inbox(open_stream: Callable[[], Opened[M]], policy: WatchPolicy) -> AsyncGenerator[M, None]:
    """Changes of the inbox, of plans or of a project's runs, over as many connections as necessary.

    Each begins with the full list, or where the one before was.

    Raises the last TurnwrightError if no executor answered `retries_max` consecutive reconnects.
    """
    failures = _Failures(policy)
    while True:
        try:
            async with open_stream() as stream:
                while True:
                    change = await _next(stream, policy.silence_s_max)
                    failures.reset()
                    yield change
        except TurnwrightError as error:
            pause_s = failures.add(error)
        await asyncio.sleep(pause_s)


async def _next(stream: AsyncIterator[M], silence_s_max: float) -> M:
    """The next event. An end or a silence counts as unavailability, because only the reader ends a watch."""
    try:
        async with asyncio.timeout(silence_s_max):
            return await anext(stream)
    except StopAsyncIteration:
        values = {"service": "executor", ANSWERED: ""}
        raise fault(Reason.SERVICE_UNAVAILABLE, "The executor ended the watch.", **values) from None
    except TimeoutError:
        raise fault(
            Reason.SERVICE_UNAVAILABLE,
            f"The executor was silent for {silence_s_max:g} s, without a heartbeat.",
            service="executor",
        ) from None


_UNNUMBERED: Final = frozenset({"snapshot", "heartbeat", "plan_updated", "plan_removed", "legacy_plan"})
"""Events that may repeat a number."""


def is_behind_a_gap(event: Event, before: cursor_pb2.EventCursor | None) -> bool:
    """Whether events are missing or repeated before this one: only a snapshot can make up for that (RE03)."""
    if event.WhichOneof("event") in _UNNUMBERED:
        return False
    return before is None or (event.cursor.epoch, event.cursor.seq) != (before.epoch, before.seq + 1)


def _gap(event: Event) -> TurnwrightError:
    message = f"Events are missing before {event.cursor.seq}: the watch begins again with a snapshot."
    return fault(Reason.SERVICE_UNAVAILABLE, message, service="executor", **{ANSWERED: ""})


def resume_point(event: Event, before: cursor_pb2.EventCursor | None) -> cursor_pb2.EventCursor | None:
    """The cursor to resume from after this event.

    Parts of a snapshot count only once the last one has come: resuming in the middle would lose the rest. For the same
    reason a heartbeat does not advance it.
    """
    kind = event.WhichOneof("event")
    if kind == "heartbeat" or (kind == "snapshot" and not event.snapshot.last):
        return before
    return event.cursor
