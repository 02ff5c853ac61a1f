"""Agents at the command line: what they propose where their run is followed, and runs as a tree. ADR 83."""

from __future__ import annotations

import time

import pytest

from e2e.cli_process import WAIT_S, Bench

GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">All is done.</update>'


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    made = Bench(tmp_path, stack=stack)
    (made.project / "a.txt").write_text("old\n")
    made.script("m", f'<delegate name="part" model="helper">Write b.txt.</delegate>{GO_ON}', DONE)
    made.script("helper", f'<set path="b.txt">new</set>{GO_ON}', DONE)
    assert made.run("models", "add", "helper", "scripted/helper").returncode == 0
    return made


def test_what_an_agent_proposes_is_said_with_its_run_and_decided_there(bench) -> None:
    left = bench.run("act", "Delegate.", "--model", "m", "--run", "r")
    assert left.returncode == 6
    assert "turnwright resolve r-part log://turn_1/set/b.txt --accept" in left.stderr
    assert "turnwright resolve r-part log://turn_1/set/b.txt --accept" in bench.run("runs", "show", "r").stdout
    assert bench.run("resolve", "r-part", "--accept").returncode == 0
    assert (bench.project / "b.txt").read_text() == "new"
    deadline_s = time.monotonic() + WAIT_S
    while not bench.run("runs", "show", "r").stdout.startswith("r: 200 "):
        assert time.monotonic() < deadline_s, "the run has not gone on"


def test_agents_are_listed_behind_their_run(bench) -> None:
    bench.run("act", "Delegate.", "--model", "m", "--run", "r")
    bench.script("n", DONE)
    assert bench.run("models", "add", "n", "scripted/n").returncode == 0
    assert bench.run("act", "Another.", "--model", "n", "--run", "other").returncode == 0
    _, *rows = bench.run("runs").stdout.splitlines()
    assert [row.split("\t")[0] for row in rows] == ["other", "r", "r-part"]
    assert bench.run("runs", "show", "r-part").stdout.splitlines()[0].endswith(", the agent part of r")
