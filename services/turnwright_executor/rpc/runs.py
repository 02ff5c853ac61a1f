"""What the executor adds to RunService: a check of vendors, the end of work at the owner, its events, lasting watches.

Theory of operation. Each watch of a project holds one watch of the store. If that one ends, the watcher only gets
heartbeats until the store answers again, and then another snapshot, which replaces what it has: nothing is missed, and
nothing is reported twice as new. Source: architecture 7; rows RU241, RU242, RU246.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from turnwright.runs.v1 import run_service_pb2 as pb
from turnwright.types.v1 import heartbeat_pb2

from turnwright_core import __version__
from turnwright_core.errors import TurnwrightError
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import AWAY
from turnwright_executor.ports.vendors import CheckVendor
from turnwright_executor.rpc.watches import OpenWatches
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hub import FEED_BACKOFF
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.watching.run_fold import set_now
from turnwright_kit.peer import Around, StreamHandler, UnaryHandler


class ClientRuns(Struct, frozen=True):
    """The runs that clients create, change and end."""

    hubs: Hubs
    scheduler: Scheduler
    check_vendor: CheckVendor
    to_owner: Around
    """The call reaches the owner of the run, if that is another executor."""
    watches: OpenWatches
    heartbeat_s: float
    """Interval of heartbeats, in seconds."""

    def around(self) -> Mapping[str, Around]:
        """Handlers by method."""
        return {
            "CreateRun": lambda _, inner: partial(self._configured, inner, lambda request: request.settings.model),
            "ConfigureRun": lambda _, inner: partial(self._configured, inner, lambda request: request.patch.model),
            "InjectMessage": lambda _, inner: partial(self._with_events, inner),
            "AbortRun": lambda method, inner: self.to_owner(method, partial(self._aborted, inner)),
            "WatchRuns": lambda _, inner: partial(self._watched, inner),
        }

    async def _configured(self, inner: UnaryHandler, model_of: Callable[[Any], str], request: Any, context: Any) -> Any:
        await self.check_vendor(model_of(request), "settings.model")
        return await inner(request, context)

    async def _with_events(self, inner: UnaryHandler, request: Any, context: Any) -> Any:
        """The answer with the position of the events before the call."""
        async with self.hubs.hold(RunAddress(request.project, request.run)) as hub:
            before = hub.before_call()
            answer = await inner(request, context)
        answer.event_cursor.CopyFrom(before.cursor(answer.cursor))
        return answer

    async def _aborted(self, inner: UnaryHandler, request: Any, context: Any) -> Any:
        answer = await self._with_events(inner, request, context)
        self.scheduler.abort(RunAddress(request.project, request.run), answer.run.loop.sequence)
        return answer

    async def _watched(self, inner: StreamHandler, request: Any, context: Any) -> AsyncGenerator[pb.WatchRunsResponse]:
        """Hello, a snapshot, then changes. Raises PROJECT_NOT_FOUND, DRAINING."""
        yield _now(hello=pb.Hello(version=__version__))
        async with (
            contextlib.aclosing(_changes(inner, request, context)) as changes,
            contextlib.aclosing(self.watches.follow(changes, self.heartbeat_s)) as following,
        ):
            async for change in following:
                yield change or _now(heartbeat=heartbeat_pb2.Heartbeat())


async def _changes(inner: StreamHandler, request: Any, context: Any) -> AsyncGenerator[pb.WatchRunsResponse]:
    """What the store tells, again and again, without its heartbeats."""
    pauses = FEED_BACKOFF.pauses()
    while True:
        try:
            async with contextlib.aclosing(inner(request, context)) as messages:
                async for message in messages:
                    pauses = FEED_BACKOFF.pauses()
                    if not message.HasField("heartbeat"):
                        yield message
        except TurnwrightError as error:
            if error.reason not in AWAY:
                raise
        await asyncio.sleep(next(pauses))


def _now(**event: Any) -> pb.WatchRunsResponse:
    message = pb.WatchRunsResponse(**event)
    set_now(message.time)
    return message
