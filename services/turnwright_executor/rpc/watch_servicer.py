"""The rpcs of watch.proto: watches of a project, and notices between clients.

Theory of operation. Each watch of a project holds one watch of the store. If that one ends, the watcher only gets
heartbeats until the store answers again, and then another snapshot, which replaces what it has: nothing is missed, and
nothing is reported twice as new. Notices are not stored.
Source: architecture 7; rows RU241, RU242, RU246.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.executor.v1 import event_pb2, watch_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse
from turnwright.store.v1 import control_pb2

from turnwright_core import __version__
from turnwright_core.checks import check_bytes, check_chars, invalid
from turnwright_core.entries import Tier
from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import EVENT_BODY_BYTES_MAX, NAME_CHARS_MAX, NOTICE_BYTES_MAX
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import AWAY
from turnwright_executor.rpc.forwarding import Forwarding, check_floor
from turnwright_executor.rpc.watches import OpenWatches
from turnwright_executor.watching.hub import FEED_BACKOFF
from turnwright_executor.watching.hubs import Hubs

LEVELS: Final = ("info", "warning", "error")
"""Severities of a notice."""


class WatchRpcs(Forwarding):
    """The rpcs of watch.proto."""

    _hubs: Hubs
    _watches: OpenWatches
    _heartbeat_s: float
    """Interval of heartbeats, in seconds."""
    _catalogue: watch_pb2.DiscoverResponse

    async def WatchRuns(
        self, request: watch_pb2.WatchRunsRequest, context: Any
    ) -> AsyncIterator[watch_pb2.WatchRunsResponse]:
        """Stream the runs of a project: hello, a snapshot, then changes. Raises PROJECT_NOT_FOUND, DRAINING."""
        check_floor(Tier.CLIENT, "WatchRuns")
        yield _now(hello=watch_pb2.Hello(version=__version__))
        async with (
            contextlib.aclosing(self._runs(request.project)) as changes,
            contextlib.aclosing(self._watches.follow(changes, self._heartbeat_s)) as following,
        ):
            async for change in following:
                yield change or _now(heartbeat=event_pb2.Heartbeat())

    async def _runs(self, project: str) -> AsyncGenerator[watch_pb2.WatchRunsResponse]:
        request = control_pb2.WatchRunsRequest(project=project)
        pauses = FEED_BACKOFF.pauses()
        while True:
            try:
                # No deadline: it lives as long as somebody looks; keepalive bounds the silence.
                async with self.store.stream(self.rows.WatchRuns, request, None) as rows:
                    async for message in _translated(rows):
                        pauses = FEED_BACKOFF.pauses()
                        yield message
            except TurnwrightError as error:
                if error.reason not in AWAY:
                    raise
            await asyncio.sleep(next(pauses))

    async def Notify(self, request: watch_pb2.NotifyRequest, context: Any) -> watch_pb2.NotifyResponse:
        check_floor(Tier.CLIENT, "Notify")
        message = _notification(request)
        async with self._hubs.hold(RunAddress(request.project, request.run)) as hub:
            hub.publish(message)
        return watch_pb2.NotifyResponse()

    async def Discover(self, request: watch_pb2.DiscoverRequest, context: Any) -> watch_pb2.DiscoverResponse:
        return self._catalogue


async def _translated(
    rows: AsyncIterator[control_pb2.WatchRunsResponse],
) -> AsyncIterator[watch_pb2.WatchRunsResponse]:
    """The store's messages as ours, without its heartbeats: ours are sent here."""
    part = 0
    async for message in rows:
        if message.snapshot:
            snapshot = watch_pb2.RunsSnapshot(part=part, last=message.snapshot_last, runs=message.runs)
            yield _now(snapshot=snapshot)
            part += 1
        elif message.runs or message.removed:
            yield _now(changed=watch_pb2.RunsChanged(runs=message.runs, removed=message.removed))


def _now(**event: Any) -> watch_pb2.WatchRunsResponse:
    stamp = Timestamp()
    stamp.FromNanoseconds(time.time_ns())
    return watch_pb2.WatchRunsResponse(time=stamp, **event)


def _notification(request: watch_pb2.NotifyRequest) -> WatchRunResponse:
    match request.WhichOneof("message"):
        case "notice":
            return WatchRunResponse(notice=_checked_notice(request.notice))
        case "rendering":
            check_bytes("rendering.text", request.rendering.text, EVENT_BODY_BYTES_MAX)
            check_chars("rendering.id", request.rendering.id, NAME_CHARS_MAX)
            return WatchRunResponse(rendering=request.rendering)
        case _:
            raise invalid("message", "Set `notice` or `rendering`.")


def _checked_notice(notice: event_pb2.Notice) -> event_pb2.Notice:
    if not notice.text.strip():
        raise invalid("notice.text", "The notice has no text.")
    check_bytes("notice.text", notice.text, NOTICE_BYTES_MAX)
    check_chars("notice.source", notice.source, NAME_CHARS_MAX)
    notice.level = notice.level or LEVELS[0]
    if notice.level not in LEVELS:
        raise invalid("notice.level", f"The level of a notice must be {', '.join(LEVELS)}; not {notice.level!r}.")
    return notice
