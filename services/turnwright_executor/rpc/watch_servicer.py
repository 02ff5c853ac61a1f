"""Watches of runs, notices between clients, which are not stored, and what the executor supports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from turnwright.executor.v1 import event_pb2, watch_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunRequest, WatchRunResponse

from turnwright_core.checks import check_bytes, check_chars, invalid
from turnwright_core.limits import EVENT_BODY_BYTES_MAX, NAME_CHARS_MAX, NOTICE_BYTES_MAX
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.rpc.forwarding import Forwarding
from turnwright_executor.watching.hubs import Hubs
from turnwright_kit.identity.caller import Caller, current_caller


class WatchRpcs(Forwarding):
    """WatchRun, and the rpcs of watch.proto."""

    watch_events: Callable[[WatchRunRequest, Any], AsyncIterator[WatchRunResponse]]
    """WatchRun, wherever the run is."""
    _hubs: Hubs
    _catalogue: watch_pb2.DiscoverResponse

    def WatchRun(self, request: WatchRunRequest, context: Any) -> AsyncIterator[WatchRunResponse]:
        return self.watch_events(request, context)

    async def Notify(self, request: watch_pb2.NotifyRequest, context: Any) -> watch_pb2.NotifyResponse:
        message = _notification(request)
        await self.check_seen(request)
        async with self._hubs.hold(RunAddress(request.project, request.run)) as hub:
            hub.publish(message)
        return watch_pb2.NotifyResponse()

    async def Discover(self, request: watch_pb2.DiscoverRequest, context: Any) -> watch_pb2.DiscoverResponse:
        return self._catalogue


def _notification(request: watch_pb2.NotifyRequest) -> WatchRunResponse:
    match request.WhichOneof("message"):
        case "notice":
            return WatchRunResponse(notice=_checked_notice(request.notice, current_caller()))
        case "rendering":
            check_bytes("rendering.text", request.rendering.text, EVENT_BODY_BYTES_MAX)
            check_chars("rendering.id", request.rendering.id, NAME_CHARS_MAX)
            return WatchRunResponse(rendering=request.rendering)
        case _:
            raise invalid("message", "Set `notice` or `rendering`.")


def _checked_notice(notice: event_pb2.Notice, caller: Caller) -> event_pb2.Notice:
    if not notice.text.strip():
        raise invalid("notice.text", "The notice has no text.")
    check_bytes("notice.text", notice.text, NOTICE_BYTES_MAX)
    check_chars("notice.source", notice.source, NAME_CHARS_MAX)
    if not caller.is_trusted:
        notice.source = caller.name
    notice.level = notice.level or event_pb2.NOTICE_LEVEL_INFO
    return notice
