"""What a collector and Prometheus get to know of turns, over real OTLP and HTTP, from four processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent import futures

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from turnwright.types.v1 import settings_pb2

from certificates import Authority
from monitoring import FOLDER, dashboard_queries, metrics
from ports import free_ports
from turnwright_client import Client
from turnwright_client.client import loop_in
from turnwright_core.errors import TurnwrightError
from turnwright_core.runs import COMPLETED, LOOP_ENDED
from turnwright_kit.home import read_or_make_token
from turnwright_kit.scope import enter_scope
from turnwright_kit.telemetry_names import METRICS
from turnwright_kit.telemetry_sdk import Sdk

WAIT_S = 60
SECRET_WORDS = "the launch code is 0000"
SERVICES = ("store", "provider", "assembler", "executor")


class Collector(
    trace_service_pb2_grpc.TraceServiceServicer,
    metrics_service_pb2_grpc.MetricsServiceServicer,
    logs_service_pb2_grpc.LogsServiceServicer,
):
    """Keeps what it is sent."""

    def __init__(self):
        self.spans = []
        self.events = []
        self.raw = b""
        self.points = {}
        """The attributes of each series, by metric."""

    def Export(self, request, _context):
        self.raw += request.SerializeToString()
        if isinstance(request, metrics_service_pb2.ExportMetricsServiceRequest):
            for metric in (
                metric for sent in request.resource_metrics for scope in sent.scope_metrics for metric in scope.metrics
            ):
                points = getattr(metric, metric.WhichOneof("data")).data_points
                self.points.setdefault(metric.name, []).extend(attributes_of(point) for point in points)
            return metrics_service_pb2.ExportMetricsServiceResponse()
        if isinstance(request, logs_service_pb2.ExportLogsServiceRequest):
            for of_resource in request.resource_logs:
                self.events += [record for scope in of_resource.scope_logs for record in scope.log_records]
            return logs_service_pb2.ExportLogsServiceResponse()
        for of_resource in request.resource_spans:
            self.spans += [span for scope in of_resource.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def chains(self, trace: bytes) -> set[tuple[str, ...]]:
        """The spans of a trace by name, each with its ancestors."""
        known = {span.span_id: span for span in self.spans if span.trace_id == trace}

        def chain(span):
            above = known.get(span.parent_span_id)
            return (span.name, *(chain(above) if above else ()))

        return {chain(span) for span in known.values()}


@contextlib.contextmanager
def listening(sink):
    """A collector at `sink.port`."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(sink, server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(sink, server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(sink, server)
    sink.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield sink
    server.stop(1).wait()


class Deployment:
    """Four processes on sockets in a folder, with a certificate that their channels do not need."""

    def __init__(self, folder, collector_port: int):
        self.folder = folder
        self.authority = Authority(folder / "ca.pem")
        self.own = self.authority.issue(folder / "own")
        ports = free_ports(2 * len(SERVICES))
        self.metrics = dict(zip(SERVICES, ports, strict=False))
        self.probes = dict(zip(SERVICES, ports[len(SERVICES) :], strict=True))
        at = {f"TURNWRIGHT_{name.upper()}": f"unix:{folder}/{name}" for name in SERVICES[:3]}
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWRIGHT_", "OTEL_"))}
        self.env = {
            **clean, **at,
            "TURNWRIGHT_HOME": str(folder / "home"), "TURNWRIGHT_MODEL_m": "scripted/m", "TURNWRIGHT_LAME_DUCK_S": "0",
            "TURNWRIGHT_SCRIPTED_DIR": str(folder), "TURNWRIGHT_SH_SANDBOX": "limits",
            "TURNWRIGHT_OTLP_ENDPOINT": f"http://127.0.0.1:{collector_port}",
            "TURNWRIGHT_TLS_CERT": f"{self.own}/cert.pem", "TURNWRIGHT_TLS_KEY": f"{self.own}/key.pem",
            "TURNWRIGHT_TLS_CA": str(self.authority.file),
            "OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_METRIC_EXPORT_INTERVAL": "500", "OTEL_BLRP_SCHEDULE_DELAY": "200",
        }  # fmt: skip
        (folder / "project").mkdir()
        (folder / "home").mkdir(mode=0o700)
        self.processes = []

    def __enter__(self):
        for name in SERVICES:
            listen = {"LISTEN": f"unix:{self.folder}/{name}", "METRICS_LISTEN": f"127.0.0.1:{self.metrics[name]}",
                      "READY_LISTEN": f"127.0.0.1:{self.probes[name]}"}  # fmt: skip
            env = {**self.env, **{f"TURNWRIGHT_{key}": value for key, value in listen.items()}}
            with (self.folder / f"{name}.log").open("w") as log:
                command = [sys.executable, "-m", f"turnwright_{name}"]
                self.processes.append(subprocess.Popen(command, env=env, stderr=log))
        end_s = time.monotonic() + WAIT_S
        while not all((self.folder / name).exists() for name in SERVICES):
            assert time.monotonic() < end_s
            time.sleep(0.05)
        return self

    def __exit__(self, *_error):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(WAIT_S)

    async def act(self, prompt: str, *replies: str, trace: str = "") -> str:
        """The run, once its task is done; `trace` is the `traceparent` of who asks."""
        blocks = [f"=== reply chunk_chars=64 delay_ms=0 ===\n{reply}\n" for reply in replies]
        (self.folder / "m.txt").write_text("".join(blocks))
        token = read_or_make_token(self.folder / "home")
        async with Client.connect(f"unix:{self.folder}/executor", token) as client:
            client._peer._options.enter_result["metadata"] += (("traceparent", trace),) if trace else ()
            project = (await client.init_project(str(self.folder / "project"))).name
            queued = await client.act(project, prompt, settings=settings_pb2.LoopSettings(model="m", yolo=True))
            async with contextlib.aclosing(client.watch(project, queued.run, queued.cursor)) as events:
                async for event in events:
                    if (loop := loop_in(event)) and loop.status in LOOP_ENDED:
                        assert loop.status == COMPLETED
                        return queued.run
        raise AssertionError("the watch ended")

    def page(self, name: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics[name]}/metrics", timeout=10) as answer:
            return answer.read().decode()

    def readiness(self, name: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.probes[name]}/ready/{name}", timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()


@pytest.fixture(scope="module")
def collector():
    with listening(Collector()) as sink:
        yield sink


@pytest.fixture(scope="module")
def deployment(tmp_path_factory, collector):
    with Deployment(tmp_path_factory.mktemp("telemetry"), collector.port) as made:
        yield made


def attributes_of(found) -> dict:
    """Those of a span, or of a series."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in found.attributes}


def attribute(span, name: str):
    return attributes_of(span).get(name)


async def until(condition) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - an exporter tells nobody when it sends
            await asyncio.sleep(0.1)


DONE = '<update status="200">Done</update>'


@pytest.mark.asyncio
async def test_each_turn_is_one_trace_through_all_four_services(deployment, collector):
    first = f'<set path="note.txt">{SECRET_WORDS}</set>\n<update status="102">More</update>'
    run = await deployment.act(f"Write a note: {SECRET_WORDS}", first, DONE)

    def turns():
        return [span for span in collector.spans if attribute(span, "gen_ai.conversation.id") == run]

    generate, assemble, end = (
        ("turnwright.provider.v1.ProviderService/Generate",) * 2,
        ("turnwright.assembler.v1.AssemblerService/Assemble",) * 2,
        ("turnwright.store.v1.StoreService/EndTurn",) * 2,
    )
    # Each call is a span of its client, and one of its server below it.
    wanted = {
        ("chat m", *generate, "generate", "invoke_agent"),
        (*assemble, "assemble", "invoke_agent"),
        (*end, "judge", "invoke_agent"),
    }
    await until(lambda: len(turns()) == 2)
    for turn in turns():
        await until(lambda turn=turn: wanted <= collector.chains(turn.trace_id))
        assert not turn.parent_span_id
    assert [attribute(span, "turnwright.turn") for span in turns()] == [1, 2]
    assert [attribute(span, "turnwright.verdict") for span in turns()] == [102, 200]
    assert len({span.trace_id for span in turns()}) == 2
    lines = [json.loads(line) for line in (deployment.folder / "executor.log").read_text().splitlines()]
    ended = [line for line in lines if line["event"] == "turn_ended" and line["run"] == run]
    traced = {(span.trace_id.hex(), span.span_id.hex()) for span in collector.spans}
    assert {(line["trace_id"], line["span_id"]) for line in ended} <= traced
    assert [(line["trace_id"], line["turn"]) for line in ended] == [
        (span.trace_id.hex(), attribute(span, "turnwright.turn")) for span in turns()
    ]
    chats = [span for span in collector.spans if span.name == "chat m"]
    assert {attribute(span, "gen_ai.operation.name") for span in chats} == {"chat"}
    assert {attribute(span, "gen_ai.provider.name") for span in chats} == {"scripted"}
    await until(
        lambda: {"turnwright.turn.duration", "gen_ai.client.inference.usage.input_tokens"} <= set(collector.points)
    )
    assert b"launch code" not in collector.raw


@pytest.mark.asyncio
async def test_each_row_of_the_audit_is_an_event_of_the_collector_in_its_trace(deployment, collector):
    run = await deployment.act(f"Write a note: {SECRET_WORDS}", DONE)

    def found():
        return [one for one in collector.events if attribute(one, "gen_ai.conversation.id") == run]

    await until(found)
    (made,) = found()
    shown = {name: value for name, value in attributes_of(made).items() if name != "turnwright.audit.request_id"}
    assert shown == {
        "enduser.id": "operator", "rpc.system.name": "grpc",
        "rpc.method": "turnwright.executor.v1.ExecutorService/Act",
        "client.address": "unix:", "turnwright.project": "project", "gen_ai.conversation.id": run,
        "turnwright.audit.kind": "person", "turnwright.audit.proof": "secret", "turnwright.audit.by": "operator",
        "turnwright.audit.right": "run",
    }  # fmt: skip
    text = "operator called turnwright.executor.v1.ExecutorService/Act"
    assert (made.event_name, made.body.string_value) == ("turnwright.audit", text)
    await until(lambda: made.span_id in {span.span_id for span in collector.spans})
    assert b"launch code" not in collector.raw


@pytest.mark.asyncio
async def test_no_event_is_lost_when_a_store_is_stopped(tmp_path):
    with listening(Collector()) as sink:
        made = Deployment(tmp_path, sink.port)
        # Nothing leaves before the end.
        made.env["OTEL_BLRP_SCHEDULE_DELAY"] = "3600000"
        with made:
            token = read_or_make_token(tmp_path / "home")
            async with Client.connect(f"unix:{tmp_path}/executor", token) as client:
                project = (await client.init_project(str(tmp_path / "project"))).name
                for number in range(60):
                    await client.create_run(project, f"r{number}", settings_pb2.RunSettings(model="m"))
                rows = [*await client.list_audit(project, most=0), *await client.list_audit("", most=0)]
            assert sink.events == []
        methods = sorted(attribute(one, "rpc.method").rpartition("/")[2] for one in sink.events)
    assert methods == sorted(row.method for row in rows)
    assert methods.count("CreateRun") == 60


RPC = {"rpc.system.name", "rpc.method", "rpc.response.status_code"}
MODEL = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"}
SPANS = {
    "rpc of a client": RPC | {"server.address"},
    "rpc of a server": RPC,
    "invoke_agent": MODEL | {"gen_ai.conversation.id"},
    "chat": MODEL | {"gen_ai.request.stream"},
    "execute_tool": {"gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.id"},
}
"""What OpenTelemetry's conventions want of each kind of span, where it is known: RPC 1.45, GenAI 0.1."""
SERIES = {
    "rpc.server.call.duration": RPC,
    "gen_ai.client.inference.duration": MODEL,
    "gen_ai.client.inference.time_to_first_chunk": MODEL,
    "gen_ai.client.inference.usage.input_tokens": MODEL | {"gen_ai.token.modality"},
    "gen_ai.client.inference.usage.output_tokens": MODEL | {"gen_ai.token.modality"},
}
"""And of the metrics that they name."""


def kind_of(span) -> str:
    """Its key in SPANS; empty for a step of a turn, which the conventions do not know."""
    if "rpc.method" in attributes_of(span):
        return "rpc of a client" if span.kind == Span.SPAN_KIND_CLIENT else "rpc of a server"
    return attribute(span, "gen_ai.operation.name") or ""


@pytest.mark.asyncio
async def test_spans_and_metrics_have_what_the_conventions_require(deployment, collector):
    more = '<set path="a.txt">a</set>\n<get path="none.txt"/>\n<update status="102">More</update>'
    run = await deployment.act("Do it.", more, DONE)
    token = read_or_make_token(deployment.folder / "home")
    async with Client.connect(f"unix:{deployment.folder}/executor", token) as client:
        project = (await client.init_project(str(deployment.folder / "project"))).name
        wanted = settings_pb2.LoopSettings(model="scripted/none", yolo=True)
        queued = await client.act(project, "Fail.", run="failing", settings=wanted)
        async with contextlib.aclosing(client.watch(project, queued.run, queued.cursor)) as events:
            async for event in events:
                if (loop := loop_in(event)) and loop.status in LOOP_ENDED:
                    break

    def failed() -> set[str]:
        return {kind_of(span) for span in collector.spans if span.status.code == span.status.STATUS_CODE_ERROR}

    def failing() -> set[str]:
        return {name for name, series in collector.points.items() if any("error.type" in one for one in series)}

    await until(
        lambda: set(SPANS) <= {kind_of(span) for span in collector.spans} and set(SERIES) <= set(collector.points)
    )
    await until(lambda: {"chat", "invoke_agent", "execute_tool"} <= failed())
    await until(lambda: "gen_ai.client.inference.duration" in failing())
    assert set(SERIES) == {name for name in METRICS if not name.startswith("turnwright.")}
    for span in collector.spans:
        found = attributes_of(span)
        assert SPANS.get(kind_of(span), set()) <= set(found), span
        assert ("error.type" in found) == (span.status.code == span.status.STATUS_CODE_ERROR), span
    for name, required in SERIES.items():
        for series in collector.points[name]:
            assert required <= set(series), name
    # A socket has no port: it is the address.
    clients = [attributes_of(span) for span in collector.spans if kind_of(span) == "rpc of a client"]
    assert {found["server.address"] for found in clients} == {f"{deployment.folder}/{name}" for name in SERVICES[:3]}
    tools = [attributes_of(span) for span in collector.spans if kind_of(span) == "execute_tool"]
    named = {(found["gen_ai.tool.name"], found["gen_ai.tool.call.id"], found.get("error.type")) for found in tools}
    assert {("set", "call_1_0", None), ("get", "call_1_1", "not_found"), ("update", "call_2_0", None)} <= named
    assert run


@pytest.mark.parametrize(
    ("target", "address", "port"),
    [
        ("store:7001", "store", 7001),
        ("dns:///store:7001", "store", 7001),
        ("dns://10.0.0.1/store:7001", "store", 7001),
        ("10.0.0.1:7001", "10.0.0.1", 7001),
        ("[::1]:7001", "::1", 7001),
        ("unix:/run/store", "/run/store", None),
        ("unix:///run/store", "/run/store", None),
        ("ipv4:10.0.0.1:7001,10.0.0.2:7001", "ipv4:10.0.0.1:7001,10.0.0.2:7001", None),
    ],
)
def test_the_target_of_a_channel_is_told_as_the_conventions_say(collector, target, address, port):
    sdk = Sdk(f"http://127.0.0.1:{collector.port}", "", "targets")
    with sdk.outgoing(f"/test/{target}", target):
        pass
    sdk.stop()
    (span,) = (span for span in collector.spans if span.name == f"test/{target}")
    assert (attribute(span, "server.address"), attribute(span, "server.port")) == (address, port)


@pytest.mark.asyncio
async def test_a_turn_is_linked_to_the_trace_that_asked_for_it(deployment, collector):
    asked = "0af7651916cd43dd8448eb211c80319c"
    await deployment.act("Do it.", DONE, trace=f"00-{asked}-b7ad6b7169203331-01")
    await until(lambda: any(span.trace_id.hex() == asked for span in collector.spans))
    await until(lambda: any(link.trace_id.hex() == asked for span in collector.spans for link in span.links))


@pytest.mark.asyncio
@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_says_to_probes_that_it_is_ready(deployment, name):
    await deployment.act("Do it.", DONE)
    async with asyncio.timeout(60):
        while (seen := deployment.readiness(name)) != "ready\n":
            assert seen.startswith("not ready: ")
            await asyncio.sleep(0.05)


@pytest.mark.asyncio
async def test_a_client_adds_no_label_to_a_metric(deployment):
    await deployment.act("Do it.", DONE)

    def labels() -> set[str]:
        found = set()
        for name in SERVICES:
            for line in deployment.page(name).splitlines():
                found |= set(re.findall(r'(\w+="[^"]*")', line)) if not line.startswith("#") else set()
        # Services call each other by the clock, so that a method or a code may first show at any time: both are the contract's, not a client's.
        return {each for each in found if not re.match("rpc_method|rpc_response_status_code", each)}

    def methods() -> set[str]:
        return set(re.findall(r'rpc_method="([^"]*)"', "".join(map(deployment.page, SERVICES))))

    token = read_or_make_token(deployment.folder / "home")
    async with Client.connect(f"unix:{deployment.folder}/executor", token) as client:
        project = (await client.init_project(str(deployment.folder / "project"))).name
        for number in range(5):
            # A model that only the client knows, a project, a run, a tool and a reason that are new each time.
            wanted = settings_pb2.LoopSettings(model=f"scripted/none{number}", yolo=True)
            queued = await client.act(project, f"Do {number}.", run=f"none{number}", settings=wanted)
            async with contextlib.aclosing(client.watch(project, queued.run, queued.cursor)) as events:
                async for event in events:
                    if (loop := loop_in(event)) and loop.status in LOOP_ENDED:
                        break
            for call in (
                client.call_tool(project, queued.run, f"tool{number}"),
                client.get_run(project, f"no{number}"),
            ):
                with contextlib.suppress(TurnwrightError):
                    await call
            if number == 1:
                known = labels()
    assert labels() - known == set()
    assert 'gen_ai_request_model="_other"' in labels()
    assert 'gen_ai_request_model="m"' in labels()


@pytest.mark.asyncio
async def test_probes_and_reflection_leave_no_spans(deployment, collector):
    def traced(kind: str) -> bool:
        return any(kind in span.name for span in collector.spans)

    with grpc.insecure_channel(f"unix:{deployment.folder}/executor") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for _ in range(5):
            health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
    await deployment.act("Do it.", DONE)
    await until(lambda: traced("ExecutorService/Act"))
    assert not traced("grpc.health")


@pytest.mark.asyncio
async def test_prometheus_finds_what_an_operator_asks_for(deployment):
    await deployment.act("Do it.", DONE)
    executor, store, provider = (deployment.page(name) for name in ("executor", "store", "provider"))
    for page, wanted in (
        (executor, 'turnwright_verdict="200"'),
        (executor, 'turnwright_sandbox{backend="limits"'),
        (executor, "turnwright_leases_lost_total{"),
        (store, 'rpc_method="turnwright.store.v1.StoreService/EndTurn"'),
        (store, "turnwright_proposals_waiting{"),
        (store, "turnwright_queue_age_seconds{"),
        (provider, "gen_ai_client_inference_duration_seconds_count{"),
        # A call within a host takes milliseconds: buckets of whole seconds would show nothing.
        (store, 'le="0.005"'),
    ):
        assert wanted in page
    shown = {
        name
        for page in (executor, store, provider)
        for name in re.findall(r"^(\w+)[{ ]", page, re.MULTILINE)
        if name.startswith(("turnwright_", "gen_ai_", "rpc_")) and not name.endswith("_created")
    }
    assert shown <= metrics()


@pytest.mark.asyncio
async def test_prometheus_answers_every_query_of_the_dashboard(deployment, tmp_path):
    if not shutil.which("prometheus"):
        pytest.skip("needs prometheus: Debian has it")
    await deployment.act("Do it.", DONE)
    text = (FOLDER / "prometheus.yaml").read_text()
    discovery = re.search(r"dns_sd_configs:\n.*", text)
    assert discovery
    targets = [f"127.0.0.1:{port}" for port in deployment.metrics.values()]
    config = tmp_path / "prometheus.yaml"
    config.write_text(
        text.replace(discovery[0], f"static_configs: [{{targets: {json.dumps(targets)}}}]").replace("15s", "1s")
    )
    shutil.copy(FOLDER / "alerts.yaml", tmp_path)
    [port] = free_ports(1)
    options = (f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}")  # fmt: skip

    def ask(query: str) -> list:
        address = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.loads(answer.read())["data"]["result"]

    def sees_all() -> bool:
        with contextlib.suppress(OSError):
            return ask('count_over_time(up{job="turnwright"}[5m]) > 2') != []
        return False

    # Nothing of this deployment costs anything, and its vendor does not fail.
    without_data = {query for query in dashboard_queries() if "cost" in query or "vendor_errors" in query}
    process = subprocess.Popen(["prometheus", *options], stderr=subprocess.DEVNULL)  # noqa: ASYNC220 - starts at once
    try:
        await until(sees_all)
        await until(lambda: ask('sum(up{job="turnwright"})')[0]["value"][1] == "4")
        found = {query: ask(query.replace("$__rate_interval", "1m")) for query in dashboard_queries()}
    finally:
        process.kill()
        process.wait()
    assert {query for query, values in found.items() if not values} <= without_data


@pytest.mark.asyncio
async def test_a_refused_certificate_is_a_metric(deployment):
    def figures() -> tuple[float, float]:
        page = deployment.page("store")
        names = ("turnwright_tls_certificate_expiry_seconds", "turnwright_tls_certificates_refused_total")
        left_s, refused = (float(re.search(rf"^{name}{{.*}} (.*)", page, re.MULTILINE)[1]) for name in names)
        return left_s, refused

    left_s, refused = figures()
    assert left_s > 0
    assert refused == 0
    deployment.authority.issue(deployment.own, days=-1)
    await until(lambda: figures()[1] > 0)
    assert figures()[0] > 0


@pytest.mark.asyncio
async def test_collectors_that_are_away_slow_or_refuse_hold_nothing_up(caplog):
    released = threading.Event()

    class Slow(Collector):
        def Export(self, request, _context):
            released.wait(WAIT_S)
            return super().Export(request, _context)

    class Refusing(Collector):
        def Export(self, request, context):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "no room for you")

    with listening(Slow()) as slow, listening(Refusing()) as refusing, caplog.at_level(logging.WARNING):
        ports = (*free_ports(1), slow.port, refusing.port)
        sdks = [Sdk(f"http://127.0.0.1:{port}", "", "test") for port in ports]
        # More than wait for a collector at most. A collector gets none of them before all are made.
        for sdk, _ in itertools.product(sdks, range(5000)):
            with sdk.span("work", {}, calls_out=False):
                pass
        await asyncio.gather(*(asyncio.to_thread(sdk.stop) for sdk in sdks))
        assert not slow.spans
        released.set()
    assert "no room for you" in caplog.text or "PERMISSION_DENIED" in caplog.text
    assert "UNAVAILABLE" in caplog.text


@pytest.fixture
def scope_of_its_own():
    """What a test binds outside of a call, no later one logs."""
    yield
    enter_scope((), None)


@pytest.mark.usefixtures("scope_of_its_own")
@pytest.mark.parametrize(("sampler", "kept"), [("always_off", 0), ("always_on", 2), ("parentbased_always_on", 1)])
def test_samplers_of_the_library_decide(monkeypatch, sampler, kept):
    """A turn of its own, and a call of a client that does not sample its trace."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    sdk = Sdk("", "", "test")
    asked = (("traceparent", f"00-{'7' * 32}-{'8' * 16}-00"),)
    made = [sdk.call_begun("/test/Call", enter_scope(metadata, None)) for metadata in ((), asked)]
    assert sum(one.span.get_span_context().trace_flags.sampled for one in made) == kept
    assert [one.trace_id == "7" * 32 for one in made] == [False, True]
    assert [dict(one.metadata())["traceparent"][3:35] for one in made] == [one.trace_id for one in made]


def test_without_telemetry_none_of_its_libraries_is_loaded():
    loaded = "import sys, turnwright_executor.wiring, turnwright_kit.telemetry; print([m for m in sys.modules if 'opentelemetry' in m])"
    shown = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert shown.stdout.strip() == "[]"
