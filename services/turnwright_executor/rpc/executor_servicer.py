"""ExecutorService. Exceptions become a status in kit.guard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from turnwright.executor.v1 import executor_service_pb2_grpc, explain_pb2, query_pb2, tools_pb2, watch_pb2
from turnwright.runs.v1 import run_service_pb2_grpc
from turnwright.store.v1 import store_service_pb2_grpc

from turnwright_executor.clients.tool_calls import ToolCalls
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.vendors import CheckVendor
from turnwright_executor.rpc.control_servicer import ExecutorControlRpcs
from turnwright_executor.rpc.query_servicer import QueryRpcs
from turnwright_executor.rpc.task_servicer import TaskRpcs
from turnwright_executor.rpc.watch_servicer import WatchRpcs
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_kit.identity.policy import Policy
from turnwright_kit.peer import Peer


class ExecutorServicer(
    TaskRpcs,
    WatchRpcs,
    ExecutorControlRpcs,
    QueryRpcs,
    executor_service_pb2_grpc.ExecutorServiceServicer,
):
    """Implements turnwright.executor.v1.ExecutorService."""

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
