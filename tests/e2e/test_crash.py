"""What a killed executor leaves behind, and how the next one goes on. Architecture 11.

The whole stack runs in one process here (`turnwright serve`), so a kill takes all four services at once.
"""

from __future__ import annotations

import json
import signal
import time

import pytest

from e2e.cli_process import PORTS, WAIT_S, Bench, loop_status

SLOW = '<get path="a.txt"/><sh>echo ran >> ran.txt; sleep 30</sh><update status="102">Ran it.</update>'
DONE = '<update status="200">All is done.</update>'


@pytest.fixture
def bench(tmp_path) -> Bench:
    made = Bench(tmp_path)
    (made.project / "a.txt").write_text("old\n")
    return made


def wait_until(condition, what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)


def shown(bench: Bench, run: str) -> dict:
    return json.loads(bench.run("runs", "show", run, "--json").stdout)


def test_an_effect_that_was_under_way_happens_once_and_the_loop_goes_on(bench) -> None:
    bench.script("m", SLOW, DONE)
    # The run of the stack that is killed is free when its lease has passed.
    bench.environment["TURNWRIGHT_LEASE_S"] = "1"
    with bench.running("serve", *PORTS) as served:
        served.wait_for("executor", "err")
        with bench.running("act", "Do it.", "--model", "m", "--yolo", "--run", "r") as acting:
            wait_until((bench.project / "ran.txt").exists, "the command")
            served.popen.send_signal(signal.SIGKILL)
            served.end()
            acting.kill()

    with bench.running("serve", *PORTS) as served:
        served.wait_for("executor", "err")
        wait_until(lambda: shown(bench, "r")["run"]["status"] == 200, "the end of the run")

    assert (bench.project / "ran.txt").read_text() == "ran\n"
    assert bench.run("ask", "And?", "--model", "m", "--run", "r", "--json").returncode == 0


def test_a_run_that_was_killed_while_it_waited_still_waits(bench) -> None:
    bench.script("m", '<set path="a.txt"><<REPLACE\nnew\nREPLACE</set><update status="200">Set.</update>')
    with bench.running("serve", *PORTS) as served:
        served.wait_for("executor", "err")
        asked = bench.run("act", "Do it.", "--model", "m", "--run", "r", "--json")
        assert (asked.returncode, loop_status(asked.stdout)) == (6, 202)
        served.popen.send_signal(signal.SIGKILL)
        served.end()

    accepted = bench.run("resolve", "r", "log://turn_1/set/a.txt", "--accept", "--json")

    assert (accepted.returncode, loop_status(accepted.stdout)) == (0, 200)
    assert (bench.project / "a.txt").read_text() == "new\n"


def test_a_file_that_changed_while_its_proposal_waited_is_a_conflict(bench) -> None:
    bench.script("m", '<set path="a.txt"><<REPLACE\nnew\nREPLACE</set><update status="200">Set.</update>', DONE)
    assert bench.run("act", "Do it.", "--model", "m", "--run", "r").returncode == 6
    (bench.project / "a.txt").write_text("somebody else's\n")

    accepted = bench.run("resolve", "r", "log://turn_1/set/a.txt", "--accept", "--json")

    assert (accepted.returncode, loop_status(accepted.stdout)) == (3, 422)
    assert (bench.project / "a.txt").read_text() == "somebody else's\n"
    assert "conflict:409" in accepted.stdout
