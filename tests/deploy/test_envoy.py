"""The edge keeps what the contract says of deadlines and repeats, for each of its rpcs, and passes on nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf.descriptor_pb2 import MethodOptions
from turnwright.executor.v1 import executor_service_pb2
from turnwright.settings.v1 import settings_service_pb2
from turnwright.store.v1 import store_service_pb2

from turnwright_executor.rpc.mounting import MOUNTED

REPO = Path(__file__).parents[2]
CONTRACT = (REPO / "protos/turnwright/executor/v1/executor_service.proto").read_text()
CONFIG = yaml.safe_load((REPO / "deploy/envoy/envoy.yaml").read_text())
RESOURCES = CONFIG["static_resources"]
FILTERS = RESOURCES["listeners"][0]["filter_chains"][0]["filters"]
EDGE = FILTERS[-1]["typed_config"]
SERVICE = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]
RPCS = {f"/{service.full_name}/{rpc.name}": rpc for service in (SERVICE, *MOUNTED) for rpc in service.methods}
HEALTH = {f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch")}

UNBEGUN = {"connect-failure", "refused-stream", "reset-before-request"}
"""What no executor has seen."""
UNANSWERED = {*UNBEGUN, "reset", "unavailable"}
"""What none has answered."""


def exceptions() -> set[str]:
    """The rpcs that the contract excepts from its deadline of 30 seconds."""
    contract = re.sub(r"\s*//\s*", " ", CONTRACT.partition("\nservice ")[0])
    said = contract.partition("with these exceptions:")[2]
    assert "Watch rpcs last until they are ended" in said
    named = {word for word in re.findall(r"\b[A-Z]\w+", said) if word in SERVICE.methods_by_name}
    assert named
    return named | {rpc.name for rpc in RPCS.values() if rpc.name.startswith("Watch")}


def routes() -> list[dict[str, Any]]:
    (host,) = EDGE["route_config"]["virtual_hosts"]
    return host["routes"]


def route_of(path: str) -> dict[str, Any]:
    (found,) = (one["route"] for one in routes() if one["match"] == {"path": path})
    return found


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


@pytest.mark.parametrize("path", RPCS)
def test_the_edge_gives_an_rpc_the_time_that_the_contract_says(path):
    rpc, route = RPCS[path], route_of(path)
    # Else Envoy's default of 15 seconds.
    assert route["timeout"] == "0s"
    idle_s = seconds(route.get("idle_timeout", EDGE["stream_idle_timeout"]))
    if rpc.name not in exceptions():
        assert route["max_stream_duration"].keys() == {"grpc_timeout_header_max"}
        assert seconds(route["max_stream_duration"]["grpc_timeout_header_max"]) >= 30
        assert idle_s >= 30
    else:
        assert "max_stream_duration" not in route
        # A stream has a heartbeat each 15 seconds; what answers once is silent until then.
        assert idle_s > 2 * 15 if rpc.server_streaming else idle_s == 0


@pytest.mark.parametrize("path", RPCS)
def test_what_no_executor_has_answered_goes_to_another_one(path):
    policy = route_of(path)["retry_policy"]
    is_read = RPCS[path].GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
    assert set(policy["retry_on"].split(",")) == (UNANSWERED if is_read else UNBEGUN)
    assert policy["num_retries"] >= 2
    assert [one["name"] for one in policy["retry_host_predicate"]] == ["envoy.retry_host_predicates.previous_hosts"]
    assert policy["host_selection_retry_max_attempts"] >= 2
    assert seconds(policy["retry_back_off"]["max_interval"]) <= 1


def test_nothing_but_the_executors_rpcs_and_health_is_passed_on():
    assert [one["match"] for one in routes() if one["match"].keys() != {"path"}] == []
    passed = [one["match"]["path"] for one in routes()]
    assert sorted(passed) == sorted({*RPCS, *HEALTH})
    others = [
        *settings_service_pb2.DESCRIPTOR.services_by_name.values(),
        *store_service_pb2.DESCRIPTOR.services_by_name.values(),
    ]
    assert not [path for path in passed for service in others if service.full_name in path]


def test_what_is_passed_on_is_answered_in_json_too():
    assert filter_of("grpc_json_transcoder")["services"] == [service.full_name for service in (SERVICE, *MOUNTED)]


def filter_of(name: str) -> dict[str, Any]:
    (found,) = (one["typed_config"] for one in EDGE["http_filters"] if one["name"] == f"envoy.filters.http.{name}")
    return found


def test_what_callers_can_have_the_edge_hold_is_bounded():
    (executors,) = RESOURCES["clusters"]
    # Each retry of many calls at once must find room, and watches are requests that last.
    (breaker,) = executors["circuit_breakers"]["thresholds"]
    assert breaker["max_retries"] >= 1000 <= breaker["max_requests"]
    assert [one["name"] for one in FILTERS] == [
        "envoy.filters.network.connection_limit", "envoy.filters.network.http_connection_manager"
    ]  # fmt: skip
    assert filter_of("local_ratelimit")["rate_limited_as_resource_exhausted"]
    assert filter_of("grpc_json_transcoder")["max_request_body_size"] == 32 * 1024 * 1024
    assert EDGE["http2_protocol_options"].keys() >= {"max_concurrent_streams", "initial_connection_window_size"}
    assert EDGE["request_headers_timeout"]
    assert {one["name"] for one in CONFIG["overload_manager"]["resource_monitors"]} == {
        "envoy.resource_monitors.fixed_heap", "envoy.resource_monitors.global_downstream_max_connections"
    }  # fmt: skip


def test_pages_may_send_the_metadata_that_the_contract_names():
    (host,) = EDGE["route_config"]["virtual_hosts"]
    cors = host["typed_per_filter_config"]["envoy.filters.http.cors"]
    assert {"authorization", "grpc-timeout", "turnwright-receive-bytes", "turnwright-tier", "x-grpc-web"} <= set(
        cors["allow_headers"].split(",")
    )
    assert {"grpc-status", "grpc-message", "grpc-status-details-bin"} <= set(cors["expose_headers"].split(","))


def test_who_a_certificate_says_a_client_is_comes_from_the_edge_alone():
    """What a client sends under that name is thrown away, also where it presents no certificate."""
    assert EDGE["forward_client_cert_details"] == "SANITIZE_SET"
    assert EDGE["set_current_client_cert_details"] == {"uri": True}
