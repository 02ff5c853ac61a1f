"""What a call brings along reaches the services behind the one that was called."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from turnwright.executor.v1 import executor_service_pb2_grpc, task_pb2
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.types.v1 import settings_pb2

from log_lines import logged
from services import SECRET, running
from turnwright_core.rpc.headers import call_metadata
from turnwright_kit.logs import get_logger
from turnwright_kit.scope import current_scope, detached, enter_scope

pytestmark = pytest.mark.asyncio

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACE = (("traceparent", f"00-{TRACE_ID}-00f067aa0ba902b7-01"), ("tracestate", "a=1,b=2"))
DONE = '<update status="200">Done.</update>'


class Seen(grpc.aio.ServerInterceptor):
    """What each call came with: its method, its deadline, its trace."""

    def __init__(self) -> None:
        self.calls = []

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if handler is None or not handler.unary_unary:
            self._add(details, None)
            return handler

        async def call(request, context):
            self._add(details, context.time_remaining())
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )

    def _add(self, details, left_s) -> None:
        service, _, method = details.method.rpartition("/")
        trace = tuple((key, value) for key, value in details.invocation_metadata if key in dict(TRACE))
        self.calls.append((service.rpartition(".")[2], method, left_s, trace))


async def called(services, method: str, request, trace=TRACE, stub=executor_service_pb2_grpc.ExecutorServiceStub):
    async with grpc.aio.insecure_channel(services.addresses["executor"]) as channel:
        return await getattr(stub(channel), method)(request, timeout=20, metadata=(*call_metadata(SECRET), *trace))


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")


async def test_the_callers_deadline_bounds_the_calls_behind_it_and_its_trace_goes_along(tmp_path, scripted):
    seen = Seen()
    async with running(tmp_path, [seen]) as services:
        services.script(DONE)
        await services.until(await services.act())
        seen.calls.clear()
        request = run_service_pb2.GetRunRequest(project=services.project, run="r", turns_max=1)
        await called(services, "GetRun", request, stub=run_service_pb2_grpc.RunServiceStub)
        behind = [call for call in seen.calls if call[0] == "RunService" and call[3]]
    # The executor's and the store's.
    assert [method for _, method, _, _ in behind] == ["GetRun"] * 2
    # Without a deadline of the caller they have `rpc_timeout_s`, which is 30; on its way a timeout is rounded up.
    assert all(0 < left_s < 25 for _, _, left_s, _ in behind)
    assert {trace for *_, trace in behind} == {TRACE}


async def test_the_trace_of_a_task_reaches_all_services_and_its_deadline_does_not_bound_the_work(tmp_path, scripted):
    seen = Seen()
    async with running(tmp_path, [seen]) as services:
        services.script(DONE)
        settings = settings_pb2.LoopSettings(model="m", yolo=True)
        task = task_pb2.Task(project=services.project, run="r", prompt="Do it.", settings=settings)
        queued = (await called(services, "Act", task_pb2.ActRequest(task=task))).queued
        await services.client.wait_loop(services.project, "r", queued.loop.sequence)
    traced = {(service, method) for service, method, _, trace in seen.calls if trace == TRACE}
    assert traced >= {("AssemblerService", "Assemble"), ("ProviderService", "Generate")}
    assert {service for service, _ in traced} == {
        "ExecutorService", "AssemblerService", "ProviderService", "StoreService", "CatalogueService",
    }  # fmt: skip


@pytest.mark.parametrize(
    "trace",
    [
        (("traceparent", "nonsense"),),
        (("traceparent", f"00-{'0' * 32}-00f067aa0ba902b7-01"),),
        (("traceparent", f"ff-{TRACE_ID}-00f067aa0ba902b7-01"),),
        (TRACE[1],),
    ],
    ids=["nonsense", "no trace", "no version", "state alone"],
)
async def test_a_trace_that_is_none_is_not_passed_on(tmp_path, scripted, trace):
    seen = Seen()
    async with running(tmp_path, [seen]) as services:
        request = run_service_pb2.GetRunRequest(project=services.project, run="none")
        with pytest.raises(grpc.aio.AioRpcError):
            await called(services, "GetRun", request, trace, run_service_pb2_grpc.RunServiceStub)
    behind = [call[3] for call in seen.calls if call[1] == "GetRun"]
    assert behind[1:] == [()]


async def test_log_lines_of_a_call_name_its_trace():
    enter_scope(TRACE, None)
    with logged("info") as lines:
        get_logger("test").info("said")
    assert [line["trace_id"] for line in lines] == [TRACE_ID]


async def test_work_that_outlives_its_call_has_its_trace_and_not_its_deadline():
    scope = enter_scope(TRACE, 5.0)

    async def timeout_s() -> tuple[float, str]:
        return current_scope().timeout_s(30.0), current_scope().bound.get("trace_id")

    assert await detached(timeout_s(), name="work") == (30.0, TRACE_ID)
    assert (await asyncio.create_task(timeout_s()))[0] <= 5.0
    scope.end()
    assert (await timeout_s())[0] == 30.0
