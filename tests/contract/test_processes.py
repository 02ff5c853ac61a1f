"""Each service as a process of its own: health, reflection, authentication, logs, drain, settings. Architecture 10, 13."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from turnwright_values.types import Tier

from ports import free_ports
from services import token_for
from turnwright_core.rpc.headers import call_metadata
from turnwright_kit.identity.caller import Kind

SECRET = "process-secret"
SERVICES = {
    "store": "turnwright.store.v1.StoreService",
    "assembler": "turnwright.assembler.v1.AssemblerService",
    "provider": "turnwright.provider.v1.ProviderService",
    "executor": "turnwright.executor.v1.ExecutorService",
}
CALLS = {
    "store": "ListWork",
    "assembler": "Assemble",
    "provider": "ListVendors",
    "executor": "Discover",
}
WAIT_S = 30
WITHOUT_RIGHTS = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON = 24, 19, 21, 38
if sys.platform == "linux":
    for right in (CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_PERFMON):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, right, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""A superuser may look into every process: becomes a command without the rights that say so. Others do not have them.

A program of its own: this process has threads, and Python may abort in a child that is forked from it."""


def start(name: str, home, *arguments: str, **env: str) -> subprocess.Popen[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWRIGHT_", "OPENAI_"))}
    ours = {
        "TURNWRIGHT_HOME": str(home),
        "TURNWRIGHT_TOKEN": SECRET,
        "TURNWRIGHT_LISTEN": f"unix:{home}/{name}",
        "TURNWRIGHT_STORE": f"unix:{home}/store",
        "TURNWRIGHT_ASSEMBLER": f"unix:{home}/assembler",
        "TURNWRIGHT_PROVIDER": f"unix:{home}/provider",
    }
    return subprocess.Popen(
        [*without_rights(sys.executable), "-m", f"turnwright_{name}", *arguments],
        env={**inherited, **ours, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def without_rights(*command: str) -> list[str]:
    return [sys.executable, "-c", WITHOUT_RIGHTS, *command]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("h")


@pytest.fixture(scope="module", autouse=True)
def processes(home):
    """The four services, by name."""
    started = {}
    for name in SERVICES:
        started[name] = start(name, home)
        wait_serving(home, name)
    yield started
    for process in started.values():
        process.send_signal(signal.SIGTERM)
    for process in started.values():
        process.communicate(timeout=WAIT_S)


def wait_serving(home, name: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        with grpc.insecure_channel(f"unix:{home}/{name}") as channel:
            try:
                return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
            except grpc.RpcError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@pytest.fixture(params=SERVICES)
def service(request, home):
    with grpc.insecure_channel(f"unix:{home}/{request.param}") as channel:
        yield request.param, channel


def test_health_answers_for_the_server_and_for_the_service_without_a_token(service) -> None:
    name, channel = service
    stub = health_pb2_grpc.HealthStub(channel)
    for asked in ("", SERVICES[name]):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=asked), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_service_for_those_with_a_token(service) -> None:
    name, channel = service
    asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
    for version in ("v1alpha", "v1"):
        reflect = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        answers = list(reflect(iter(asked), timeout=60, metadata=call_metadata(SECRET)))
        assert SERVICES[name] in {item.name for item in answers[0].list_services_response.service}
        with pytest.raises(grpc.RpcError) as refused:
            list(reflect(iter(asked), timeout=60))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of processes to their user")
@pytest.mark.parametrize("name", SERVICES)
def test_other_processes_of_its_user_read_neither_environment_nor_memory_of_a_service(processes, name) -> None:
    for file in ("environ", "mem", "maps"):
        command = without_rights("head", "-c1", f"/proc/{processes[name].pid}/{file}")
        looked = subprocess.run(command, check=False, capture_output=True, timeout=WAIT_S)
        assert (looked.returncode, looked.stdout) == (1, b""), file


def call(channel, name: str, metadata) -> grpc.StatusCode:
    """The status of a call with an empty request."""
    method = f"/{SERVICES[name]}/{CALLS[name]}"
    try:
        if CALLS[name] == "Assemble":
            list(channel.unary_stream(method)(b"", timeout=60, metadata=metadata))
        else:
            channel.unary_unary(method)(b"", timeout=60, metadata=metadata)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Bearer wrong"),),
        (("authorization", f"Basic {SECRET}"),),
        (("authorization", "Bearer "),),
    ],
    ids=["none", "wrong", "not-bearer", "empty"],
)
def test_a_call_without_a_valid_token_is_refused(service, metadata) -> None:
    name, channel = service
    assert call(channel, name, metadata) is grpc.StatusCode.UNAUTHENTICATED


def test_a_call_cannot_raise_the_tier_of_its_token(service) -> None:
    name, channel = service
    token = token_for("m", Kind.MODEL, audience=name, secret=SECRET)
    assert call(channel, name, call_metadata(token, Tier.SYSTEM)) is grpc.StatusCode.PERMISSION_DENIED


def test_the_executor_and_the_assembler_have_no_business_with_a_models_token(home) -> None:
    for name in ("executor", "assembler"):
        token = token_for("m", Kind.MODEL, audience=name, secret=SECRET)
        with grpc.insecure_channel(f"unix:{home}/{name}") as channel:
            assert call(channel, name, call_metadata(token)) is grpc.StatusCode.PERMISSION_DENIED


def test_an_unknown_method_is_unimplemented(service) -> None:
    name, channel = service
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(f"/{SERVICES[name]}/Nonsense")(b"", timeout=60, metadata=call_metadata(SECRET))
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_request_that_is_no_message_is_refused_without_a_trace_of_our_code(home) -> None:
    with grpc.insecure_channel(f"unix:{home}/store") as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(f"/{SERVICES['store']}/GetRun")(b"\xff\xff\xff", timeout=60, metadata=call_metadata(SECRET))
    assert "Traceback" not in refused.value.details()


@pytest.mark.parametrize("name", SERVICES)
def test_sigterm_drains_and_ends_with_zero_and_logs_are_json(tmp_path, name) -> None:
    process = start(name, tmp_path)
    wait_serving(tmp_path, name)
    process.send_signal(signal.SIGTERM)
    _, logged = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    lines = [json.loads(line) for line in logged.splitlines()]
    told = [(line["event"], line["service"]) for line in lines if "service" in line]
    # Alone, who needs the store says that it is not there, unless it is stopped before it has found out.
    if name in ("assembler", "executor"):
        told = [one for one in told if one != ("readiness_lost", name)]
    assert told == [("service_started", name), ("service_stopped", name)]
    assert SECRET not in logged


def test_a_store_that_waits_for_its_database_is_not_ready_and_ends_with_zero_on_sigterm(tmp_path) -> None:
    page = "127.0.0.1:{}".format(*free_ports(1))
    process = start(
        "store", tmp_path, TURNWRIGHT_DB="postgresql://who:secret@127.0.0.1:1/none", TURNWRIGHT_READY_LISTEN=page
    )
    assert json.loads(process.stderr.readline())["event"] == "database_awaited"
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"http://{page}/ready/store", timeout=WAIT_S)
    process.send_signal(signal.SIGTERM)
    _, logged = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert "secret" not in logged


def test_services_start_in_any_order(tmp_path) -> None:
    executor = start("executor", tmp_path)
    wait_serving(tmp_path, "executor")
    store = start("store", tmp_path)
    wait_serving(tmp_path, "store")
    with grpc.insecure_channel(f"unix:{tmp_path}/executor") as channel:
        assert call(channel, "executor", call_metadata(SECRET)) is grpc.StatusCode.OK
    for process in (executor, store):
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)
        assert process.returncode == 0


@pytest.mark.parametrize("arguments", [["--help-me"], ["serve"], ["--listen", "127.0.0.1:0"]], ids=str)
@pytest.mark.parametrize("name", SERVICES)
def test_arguments_that_a_service_does_not_know_end_it_with_two_and_its_usage(tmp_path, name, arguments) -> None:
    process = start(name, tmp_path, *arguments)
    _, told = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert told.startswith(f"usage: python -m turnwright_{name} ")
    assert arguments[0] in told


@pytest.mark.parametrize("name", SERVICES)
def test_a_wrong_setting_is_named_and_ends_with_two(tmp_path, name) -> None:
    process = start(name, tmp_path, TURNWRIGHT_DRAIN_S="soon", TURNWRIGHT_LOG_LEVEL="loud")
    _, told = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert "TURNWRIGHT_DRAIN_S" in told
    assert "TURNWRIGHT_LOG_LEVEL" in told
    assert "Traceback" not in told


def test_a_context_length_without_its_model_is_named_and_ends_with_two(tmp_path) -> None:
    process = start("store", tmp_path, TURNWRIGHT_CONTEXT_nobody="4096")
    _, told = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert "TURNWRIGHT_CONTEXT_nobody" in told
    assert "Traceback" not in told


def test_two_stores_on_one_database_are_refused(home) -> None:
    process = start("store", home, TURNWRIGHT_LISTEN=f"unix:{home}/second")
    _, told = process.communicate(timeout=WAIT_S)
    assert process.returncode != 0
    assert "Traceback" not in told
    assert str(home) in told


def test_an_address_in_use_is_said_plainly(home, tmp_path) -> None:
    first = start("provider", tmp_path, TURNWRIGHT_LISTEN="127.0.0.1:0")
    line = json.loads(first.stderr.readline())
    second = start("provider", tmp_path, TURNWRIGHT_LISTEN=line["address"])
    _, told = second.communicate(timeout=WAIT_S)
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=WAIT_S)
    assert second.returncode != 0
    assert line["address"] in told
    assert "Traceback" not in told
