"""The rpcs of an executor that only reads. The others are UNIMPLEMENTED."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from turnwright.executor.v1 import executor_service_pb2_grpc, explain_pb2, query_pb2
from turnwright.store.v1 import store_service_pb2_grpc

from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.rpc.query_servicer import QueryRpcs
from turnwright_kit.peer import Peer


class ReadingServicer(
    QueryRpcs,
    executor_service_pb2_grpc.ExecutorServiceServicer,
):
    """Answers from the store alone, and from an assembler and a provider where there are."""

    def __init__(
        self,
        store: Peer,
        ledger: Ledger,
        explain: Callable[[explain_pb2.ExplainPacketRequest], Awaitable[explain_pb2.ExplainPacketResponse]] | None,
        status: Callable[[query_pb2.GetStatusRequest], Awaitable[query_pb2.GetStatusResponse]],
    ) -> None:
        self.store, self.rows = store, store_service_pb2_grpc.StoreServiceStub(store.channel)
        self._ledger, self._status = ledger, status
        if explain:
            self._explain = explain
