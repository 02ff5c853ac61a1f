"""The output of a command while it runs, as a person and a program see it. Rows RU171, RU174, RU245."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from e2e.cli_process import WAIT_S, Bench, json_lines
from e2e.test_cli_terminal import terminal

STYLE = re.compile(r"\x1b\[[0-9;]*m")
DONE = '<update status="200">All is done.</update>'
LINES = 300


def running(go_on: Path) -> str:
    """A command that writes many lines, waits until it is told to go on, and writes one more."""
    wait = f"while [ ! -e {go_on} ]; do sleep 0.05; done"
    return f'<sh>seq {LINES}; {wait}; echo "the end"; echo "a fault" >&2</sh><update status="102">Ran.</update>'


@pytest.fixture
def bench(tmp_path) -> Bench:
    made = Bench(tmp_path)
    made.script("m", running(tmp_path / "go_on"), DONE)
    return made


def test_a_person_sees_output_dim_while_the_command_runs_and_how_much_is_left_out(bench) -> None:
    with terminal(bench, "act", "Run it.", "--model", "m", "--yolo") as person:
        person.expect_text(r"│ 12\x1b")
        assert "\x1b[2m  │ 1\x1b[0m" in person.seen
        assert "│ the end" not in person.seen
        person.expect_text(f"running, {LINES - 12} more lines of output")
        (bench.root / "go_on").touch()
        assert person.end() == 0

    # What is erased again is not what stays on the screen.
    lines = [line.rpartition("\x1b[2K")[2] for line in STYLE.sub("", person.seen).replace("\r", "").split("\n")]
    shown = [line for line in lines if "│" in line]
    last = sorted(line.rpartition("│ ")[2] for line in shown[-4:])
    assert shown[12:-4] == [f"  │ ... {LINES + 2 - 12 - 4} more lines"]
    assert last == sorted([str(LINES - 1), str(LINES), "a fault", "the end"])


def test_a_pipe_gets_the_same_lines_without_styles(bench) -> None:
    with bench.running("act", "Run it.", "--model", "m", "--yolo") as process:
        process.wait_for("│ 12$")
        (bench.root / "go_on").touch()
        assert process.end() == 0

    shown = [line for line in process.lines["out"] if "│" in line]
    assert shown[:13] == [*(f"  │ {n}" for n in range(1, 13)), f"  │ ... {LINES + 2 - 12 - 4} more lines"]
    assert len(shown) == 12 + 1 + 4
    assert not [line for line in process.lines["out"] if "\x1b" in line or "\r" in line]


def test_a_program_gets_every_piece_as_an_event_with_its_place(bench) -> None:
    with bench.running("act", "Run it.", "--model", "m", "--yolo", "--json") as process:
        process.wait_for('"output_appended"')
        (bench.root / "go_on").touch()
        assert process.end() == 0

    messages = json_lines("\n".join(process.lines["out"]))
    pieces = [message["output_appended"] for message in messages if "output_appended" in message]
    bodies: dict[str, str] = {}
    for piece in pieces:
        before = bodies.get(piece["path"], "")
        assert int(piece.get("offset", 0)) == len(before)
        bodies[piece["path"]] = before + piece.get("text", "")
    assert sorted(bodies.values()) == ["".join(f"{n}\n" for n in range(1, LINES + 1)) + "the end\n", "a fault\n"]


def test_a_run_goes_on_while_nobody_reads_what_is_shown(tmp_path) -> None:
    """Services in the same process must not wait for a pager."""
    bench = Bench(tmp_path)
    more_than_a_pipe_holds = "=== reply chunk_chars=1000 delay_ms=5 ===\n" + "A line of text.\n" * 20_000
    bench.script("m", f'{more_than_a_pipe_holds}<sh>touch {tmp_path}/done</sh><update status="200">Done.</update>')
    with subprocess.Popen(
        bench.command("act", "Run it.", "--model", "m", "--yolo"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=bench.project, env=bench.env(),
    ) as process:  # fmt: skip
        try:
            until = time.monotonic() + WAIT_S
            while not (tmp_path / "done").exists():
                assert time.monotonic() < until, "it waits for its reader"
                time.sleep(0.05)
            shown, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert b"A line of text." in shown
