"""An abort from one process ends what another one runs. Rows RU039, RU111; decision C36."""

from __future__ import annotations

import time

import pytest

from e2e.cli_process import PORTS, WAIT_S, Bench, loop_status
from living import is_alive

SLOW = '<sh>echo $$ > pid; sleep 60; touch over</sh><update status="102">Ran it.</update>'
DONE = '<update status="200">All is done.</update>'


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


def wait_until(condition, what: str):
    deadline = time.monotonic() + WAIT_S
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.02)
    return answer


def pid_of(bench: Bench) -> int:
    file = bench.project / "pid"
    return int(file.read_text() or 0) if file.exists() else 0


def test_the_command_line_stops_a_command_that_another_process_runs(bench) -> None:
    bench.script("m", SLOW, DONE)
    with bench.running("serve", *PORTS) as served:
        served.wait_for("executor", "err")
        with bench.running("act", "Do it.", "--model", "m", "--yolo", "--run", "r", "--json") as acting:
            pid = wait_until(lambda: pid_of(bench), "the command")
            assert bench.run("runs", "abort", "r").returncode == 0
            wait_until(lambda: not is_alive(pid), "the end of the command")
            assert acting.end() == 4
        told = "\n".join(acting.lines["out"])
    assert loop_status(told) == 499
    assert not (bench.project / "over").exists()
