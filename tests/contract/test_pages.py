"""The pages of a process, for Prometheus and for probes: they answer whatever others do with their connections."""

from __future__ import annotations

import contextlib
import socket
import urllib.error
import urllib.request

import pytest

from ports import free_ports
from turnwright_kit.pages import CONNECTIONS_MAX, report_readiness, serve_readiness
from turnwright_kit.telemetry import TelemetrySettings, configure_telemetry

WAIT_S = 30


def read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def addresses():
    """Those of the metrics and of the probes."""
    metrics, ready = (f"127.0.0.1:{port}" for port in free_ports(2))
    stopping = [serve_readiness(ready), configure_telemetry(TelemetrySettings(metrics_listen=metrics), "test")]
    yield metrics, ready
    for stop in stopping:
        stop()


def test_each_page_answers_at_its_own_path(addresses):
    metrics, ready = addresses
    problems = {"here": "", "away": "its database does not answer"}
    for name, problem in problems.items():
        report_readiness(name, lambda problem=problem: problem)
    assert read(f"http://{ready}/ready/here") == (200, "ready\n")
    assert read(f"http://{ready}/ready/away") == (503, "its database does not answer\n")
    assert read(f"http://{ready}/ready/nope") == (503, "it has not started\n")
    assert read(f"http://{ready}/metrics")[0] == 404
    assert read(f"http://{metrics}/metrics")[0] == 200
    assert read(f"http://{metrics}/ready/here")[0] == 404


@pytest.mark.parametrize("sent", [b"", b"GET /ready/here HTTP/1.1\r\n"], ids=["nothing", "a half"])
@pytest.mark.parametrize("page", ["metrics", "probes"])
def test_two_hundred_connections_that_send_too_little_keep_nobody_away(addresses, page, sent):
    at = dict(zip(("metrics", "probes"), addresses, strict=True))[page]
    report_readiness("here", lambda: "")
    with contextlib.ExitStack() as closing:
        host, _, port = at.rpartition(":")
        silent = [closing.enter_context(socket.create_connection((host, int(port)), WAIT_S)) for _ in range(200)]
        for each in silent:
            with contextlib.suppress(OSError):
                each.sendall(sent)
        for _ in range(3):
            assert read(f"http://{at}/{'metrics' if page == 'metrics' else 'ready/here'}")[0] == 200
        # All but the latest were ended.
        ended = 0
        for each in silent[:-CONNECTIONS_MAX]:
            with contextlib.suppress(ConnectionError):
                assert each.recv(1) == b""
            ended += 1
        assert ended == 200 - CONNECTIONS_MAX
