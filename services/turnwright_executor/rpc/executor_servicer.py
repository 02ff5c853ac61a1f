"""ExecutorService. Exceptions become a status in kit.guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from turnwright.executor.v1 import control_pb2 as pb
from turnwright.executor.v1 import event_pb2, executor_service_pb2_grpc, explain_pb2, query_pb2, tools_pb2, watch_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunRequest, WatchRunResponse
from turnwright.projects.v1.project_service_pb2 import SetFileConstraintsRequest
from turnwright.projects.v1.project_service_pb2_grpc import ProjectServiceStub
from turnwright.runs.v1 import run_service_pb2_grpc
from turnwright.store.v1 import store_service_pb2_grpc
from turnwright.tool.v1 import login_service_pb2

from turnwright_core.checks import check_bytes, check_chars, invalid
from turnwright_core.limits import EVENT_BODY_BYTES_MAX, NAME_CHARS_MAX, NOTICE_BYTES_MAX
from turnwright_core.wire.entries import entry_to_pb
from turnwright_core.wire.runs import constraint_to_pb
from turnwright_executor.clients.file_constraints import kept_file
from turnwright_executor.clients.tool_calls import ClientCommand, ToolCalls
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.models import CheckVendor
from turnwright_executor.rpc.login_servicer import ToolLoginRpcs
from turnwright_executor.rpc.query_servicer import QueryRpcs
from turnwright_executor.rpc.task_servicer import TaskRpcs
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_grammar.reply import Command
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.policy import Policy
from turnwright_kit.peer import Peer


class ExecutorServicer(
    TaskRpcs,
    QueryRpcs,
    ToolLoginRpcs,
    executor_service_pb2_grpc.ExecutorServiceServicer,
):
    """Implements turnwright.executor.v1.ExecutorService."""

    watch_events: Callable[[WatchRunRequest, Any], AsyncIterator[WatchRunResponse]]
    """WatchRun, wherever the run is."""

    def __init__(
        self,
        store: Peer,
        ledger: Ledger,
        hubs: Hubs,
        scheduler: Scheduler,
        calls: ToolCalls,
        like_run: Callable[[str], str],
        explain: Callable[[explain_pb2.ExplainPacketRequest], Awaitable[explain_pb2.ExplainPacketResponse]],
        status: Callable[[query_pb2.GetStatusRequest], Awaitable[query_pb2.GetStatusResponse]],
        check_vendor: CheckVendor,
        catalogue: watch_pb2.DiscoverResponse,
        policy: Policy,
        list_tools: Callable[[tools_pb2.ListToolsRequest], Awaitable[tools_pb2.ListToolsResponse]],
        login_step: Callable[[login_service_pb2.LoginRequest], Awaitable[login_service_pb2.LoginResponse]],
    ) -> None:
        self.store, self.rows = store, store_service_pb2_grpc.StoreServiceStub(store.channel)
        self.runs: run_service_pb2_grpc.RunServiceAsyncStub = run_service_pb2_grpc.RunServiceStub(store.channel)
        self._ledger = ledger
        self._hubs = hubs
        self._scheduler = scheduler
        self._calls = calls
        self._like_run = like_run
        self._status = status
        self._explain = explain
        self.check_vendor = check_vendor
        self._catalogue = catalogue
        self._policy = policy
        self._list_tools = list_tools
        self._login_step = login_step

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        """Carry out a client's command with a tool. File constraints that it implies are set first.

        The run's owner, whichever executor that is, sees it in the change feed.
        Source: rows RU117-RU120, RU226-RU232, RU238, RU240-RU246; decisions C13, C14, C31.
        """
        caller = current_caller()
        written = Command(request.tool, dict(request.attributes), request.body)
        command, kept = kept_file(await self._calls.read(request.project, written))
        self._policy.check_project(caller, self._calls.right_for(command), request.project, f"CallTool {request.tool}")
        await self.check_seen(request)
        if kept:
            wanted = SetFileConstraintsRequest(project=request.project, constraints=[constraint_to_pb(kept)])
            projects = ProjectServiceStub(self.store.channel)
            await self.store.call(projects.SetFileConstraints, wanted, caller=caller)
        address = RunAddress(request.project, request.run)
        call = ClientCommand(address, command, caller, request.request_id)
        return pb.CallToolResponse(record=entry_to_pb(await self._calls.call(call)))

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
