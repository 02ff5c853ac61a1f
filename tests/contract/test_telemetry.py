"""What a collector and Prometheus get to know of a turn, over real OTLP and HTTP, from services of their own processes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent import futures

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

WAIT_S = 60
SECRET_WORDS = "the launch code is 0000"


class Collector(trace_service_pb2_grpc.TraceServiceServicer, metrics_service_pb2_grpc.MetricsServiceServicer):
    """Keeps what it is sent."""

    def __init__(self):
        self.spans = []
        self.raw = b""
        self.metrics = set()

    def Export(self, request, _context):
        self.raw += request.SerializeToString()
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            for of_resource in request.resource_metrics:
                self.metrics |= {metric.name for scope in of_resource.scope_metrics for metric in scope.metrics}
            return metrics_service_pb2.ExportMetricsServiceResponse()
        for of_resource in request.resource_spans:
            self.spans += [span for scope in of_resource.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def collector():
    server = grpc.server(futures.ThreadPoolExecutor(4))
    sink = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(sink, server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(sink, server)
    sink.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield sink
    server.stop(1).wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Deployment:
    """Four processes on sockets in a folder."""

    def __init__(self, folder, **variables: str):
        self.folder = folder
        at = {f"TURNWRIGHT_{name.upper()}": f"unix:{folder}/{name}" for name in ("store", "assembler", "provider")}
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWRIGHT_", "OTEL_"))}
        self.env = {
            **clean, **at, **variables,
            "TURNWRIGHT_HOME": str(folder / "home"), "TURNWRIGHT_MODEL_m": "scripted/m", "TURNWRIGHT_LAME_DUCK_S": "0",
            "TURNWRIGHT_SCRIPTED_DIR": str(folder), "TURNWRIGHT_SH_SANDBOX": "limits",
        }  # fmt: skip
        self.env.setdefault("OTEL_BSP_SCHEDULE_DELAY", "200")
        self.env.setdefault("OTEL_METRIC_EXPORT_INTERVAL", "500")
        (folder / "project").mkdir()
        (folder / "home").mkdir(mode=0o700)
        self.processes = []

    def __enter__(self):
        for name in ("store", "provider", "assembler", "executor"):
            env = {**self.env, "TURNWRIGHT_LISTEN": f"unix:{self.folder}/{name}"}
            if metrics := self.env.get(f"METRICS_{name}"):
                env["TURNWRIGHT_METRICS_LISTEN"] = metrics
            with (self.folder / f"{name}.log").open("w") as log:
                command = [sys.executable, "-m", f"turnwright_{name}"]
                self.processes.append(subprocess.Popen(command, env=env, stderr=log))
        deadline_s = time.monotonic() + WAIT_S
        while not all((self.folder / name).exists() for name in ("store", "provider", "assembler", "executor")):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        return self

    def __exit__(self, *_error):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(WAIT_S)

    def act(self, prompt: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "turnwright_cli", "act", prompt, "--model", "m", "--yolo", "--json", *options]
        env = {**self.env, "TURNWRIGHT_OTLP_ENDPOINT": ""}
        return subprocess.run(
            [*command, "--server", f"unix:{self.folder}/executor", "--project", str(self.folder / "project")],
            env=env, text=True, capture_output=True, timeout=WAIT_S, check=False,
        )  # fmt: skip


def script(folder, *replies: str) -> None:
    (folder / "m.txt").write_text("".join(f"=== reply chunk_chars=64 delay_ms=0 ===\n{reply}\n" for reply in replies))


def attribute(span, name: str):
    for one in span.attributes:
        if one.key == name:
            return getattr(one.value, one.value.WhichOneof("value"))
    return None


async def until(condition) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - an exporter tells nobody when it sends
            await asyncio.sleep(0.1)


@pytest.mark.asyncio
async def test_each_turn_is_one_trace_through_all_four_services(tmp_path, collector):
    script(
        tmp_path,
        f'<set path="note.txt">{SECRET_WORDS}</set>\n<update status="102">More</update>',
        '<update status="200">Done</update>',
    )
    with Deployment(tmp_path, TURNWRIGHT_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.port}") as deployment:
        done = await asyncio.to_thread(deployment.act, f"Write a note: {SECRET_WORDS}")
        assert done.returncode == 0, done.stderr
        await until(lambda: sum(span.name == "turn" for span in collector.spans) == 2)
        await until(lambda: {"turnwright.turn.duration", "gen_ai.client.token.usage"} <= collector.metrics)
        await asyncio.sleep(1)
    turns = [span for span in collector.spans if span.name == "turn"]
    assert [attribute(span, "turnwright.turn") for span in turns] == [1, 2]
    assert len({span.trace_id for span in turns}) == 2
    for turn in turns:
        assert not turn.parent_span_id
        of_turn = {span.span_id: span for span in collector.spans if span.trace_id == turn.trace_id}

        def chain(span, known=of_turn):
            return [span.name, *(chain(known[span.parent_span_id]) if span.parent_span_id else [])]

        chains = {tuple(chain(span)) for span in of_turn.values()}
        assert ("chat m", "turnwright.provider.v1.ProviderService/Generate", "generate", "turn") in chains
        assert ("turnwright.assembler.v1.AssemblerService/Assemble", "assemble", "turn") in chains
        assert any(names[0].startswith("turnwright.store.v1.StoreService/") and names[-1] == "turn" for names in chains)
        assert ("turnwright.store.v1.StoreService/EndTurn", "judge", "turn") in chains
    assert [attribute(span, "turnwright.verdict") for span in turns] == [102, 200]
    chats = [span for span in collector.spans if span.name == "chat m"]
    assert {attribute(span, "gen_ai.operation.name") for span in chats} == {"chat"}
    assert {attribute(span, "gen_ai.provider.name") for span in chats} == {"scripted"}
    assert b"launch code" not in collector.raw


@pytest.mark.asyncio
async def test_a_turn_is_linked_to_the_trace_that_asked_for_it(tmp_path, collector):
    from turnwright_client import Client
    from turnwright_core.kit.home import read_or_make_token
    from turnwright_core.kit.scope import enter_scope

    script(tmp_path, '<update status="200">Done</update>')
    asked = "0af7651916cd43dd8448eb211c80319c"
    with Deployment(tmp_path, TURNWRIGHT_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.port}") as deployment:
        warm = await asyncio.to_thread(deployment.act, "Warm up.")
        assert warm.returncode == 0, warm.stderr
        script(tmp_path, '<update status="200">Done</update>', '<update status="200">Done</update>')
        enter_scope((("traceparent", f"00-{asked}-b7ad6b7169203331-01"),), None)
        token = read_or_make_token(tmp_path / "home")
        async with Client.connect(f"unix:{tmp_path}/executor", token) as client:
            project = (await client.init_project(str(tmp_path / "project"))).name
            from turnwright.types.v1 import settings_pb2

            await client.act(project, "Do it.", settings=settings_pb2.LoopSettings(model="m", yolo=True))
            await until(lambda: any(span.trace_id.hex() == asked for span in collector.spans))
            await until(lambda: any(link.trace_id.hex() == asked for span in collector.spans for link in span.links))


@pytest.mark.asyncio
async def test_prometheus_finds_what_an_operator_asks_for(tmp_path):
    script(tmp_path, '<update status="200">Done</update>')
    ports = {name: free_port() for name in ("store", "provider", "executor")}
    told = {f"METRICS_{name}": f"127.0.0.1:{port}" for name, port in ports.items()}

    def page(name: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{ports[name]}/metrics", timeout=10) as answer:
            return answer.read().decode()

    with Deployment(tmp_path, **told) as deployment:
        done = await asyncio.to_thread(deployment.act, "Do it.")
        assert done.returncode == 0, done.stderr
        executor, store, provider = page("executor"), page("store"), page("provider")
    assert "turnwright_turn_duration_seconds_count{" in executor
    assert 'turnwright_verdict="200"' in executor
    assert 'turnwright_sandbox{backend="limits"' in executor
    assert "turnwright_leases" in executor
    assert 'rpc_method="turnwright.store.v1.StoreService/EndTurn"' in store
    assert "turnwright_proposals_waiting" in store
    assert "turnwright_queue_age_seconds" in store
    assert "gen_ai_client_operation_duration_seconds_count{" in provider


@pytest.mark.asyncio
async def test_a_collector_that_is_away_holds_nothing_up(tmp_path):
    script(tmp_path, '<update status="200">Done</update>')
    with Deployment(tmp_path, TURNWRIGHT_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}") as deployment:
        done = await asyncio.to_thread(deployment.act, "Do it.")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])
        deployment.processes[0].terminate()
        deployment.processes[0].wait(WAIT_S)
    assert deployment.processes[0].returncode == 0


def test_without_telemetry_none_of_its_libraries_is_loaded():
    loaded = "import sys, turnwright_executor.wiring, turnwright_core.kit.telemetry; print([m for m in sys.modules if 'opentelemetry' in m])"
    shown = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert shown.stdout.strip() == "[]"
