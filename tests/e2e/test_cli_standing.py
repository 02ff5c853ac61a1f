"""Lists, exit codes, ends and events say one thing about a run. Rows RU013, RU140, RU280; decisions C3, C20, C27."""

from __future__ import annotations

import json
import signal
import time

import pytest

from e2e.cli_process import WAIT_S, Bench, loop_status

EDIT = '<set path="a.txt">new\nlines</set><update status="200">I have changed a.txt.</update>'
DONE = '<update status="200">All is done.</update>'
GO_ON = '<update status="102">Going on.</update>'


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    return filled(Bench(tmp_path, stack=stack))


@pytest.fixture
def alone(tmp_path) -> Bench:
    """Each of its commands embeds a stack."""
    return filled(Bench(tmp_path))


def filled(made: Bench) -> Bench:
    (made.project / "a.txt").write_text("old\n")
    return made


def listed(bench: Bench) -> list[str]:
    """The only row of `runs`."""
    _, row = bench.run("runs").stdout.splitlines()
    return row.split("\t")


def test_a_rejected_run_is_reported_as_stopped_everywhere_and_nothing_claims_the_change(bench) -> None:
    bench.script("m", EDIT, DONE)
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    ended = bench.run("resolve", "r", "--reject", "--json")
    assert (ended.returncode, loop_status(ended.stdout)) == (4, 499)
    assert listed(bench)[1] == "499 stopped (rejected)"
    assert listed(bench)[5] == "Edit it."
    shown = bench.run("runs", "show", "r").stdout
    assert shown.startswith("r: 499 stopped (rejected), 1 turn\n")
    assert "a proposal was rejected" in shown
    assert "I have changed" not in shown


def test_the_end_of_a_rejected_run_says_why_and_not_what_the_model_claims(bench) -> None:
    bench.script("m", EDIT, DONE)
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    ended = bench.run("resolve", "r", "--reject")
    assert ended.returncode == 4
    assert "Stopped: a proposal was rejected (499 rejected)" in ended.stdout
    assert "changed files: none" in ended.stdout


def test_an_update_shows_the_status_that_it_gave(bench) -> None:
    bench.script("m", '<get path="a.txt"/>' + GO_ON, DONE)
    shown = bench.run("act", "Look.", "--model", "m").stdout
    assert "  ✓ update 102  Going on." in shown
    assert "  ✓ update 200  All is done." in shown


def test_a_run_without_a_task_is_idle(bench) -> None:
    bench.script("m", DONE)
    bench.run("act", "Begin.", "--model", "m", "--run", "r")
    bench.run("fork", "r", "--to", "f")
    states = {row.split("\t")[0]: row.split("\t")[1] for row in bench.run("runs").stdout.splitlines()[1:]}
    assert states["r"] == "200 done"
    assert "queued" not in states["f"]


def test_a_run_whose_command_was_killed_is_not_running(alone) -> None:
    alone.script("m", f"<sh>touch begun; sleep 60</sh>{GO_ON}", DONE)
    short = {"TURNWRIGHT_LEASE_S": "2"}
    with alone.running("act", "Run it.", "--model", "m", "--run", "r", "--yolo", **short) as process:
        until((alone.project / "begun").exists)
        process.signal(signal.SIGKILL)
        process.end()
    until(lambda: listed(alone)[1] == "102 interrupted")
    shown = alone.run("runs", "show", "r").stdout
    assert "No executor is working on it." in shown
    assert "running" not in shown


def until(holds) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_loop_that_goes_round_in_circles_ends_with_a_sentence_and_advice(bench) -> None:
    bench.script("m", *['<get path="a.txt"/>' + GO_ON] * 9)
    ended = bench.run("act", "Look.", "--model", "m", "--run", "r", TURNWRIGHT_STRIKES_MAX="1")
    assert ended.returncode == 4
    assert (
        "Stopped: the model repeated itself without progress: the same commands, or empty replies (499 cycles)"
        in ended.stdout
    )
    assert "turnwright runs show RUN --turns" in ended.stderr


def test_prose_after_a_turn_that_failed_is_not_simply_done(bench) -> None:
    bench.script("m", '<get path="gone.txt"/>' + GO_ON, "I could not find it.")
    ended = bench.run("act", "Look.", "--model", "m", "--run", "r")
    assert "Done: commands failed in the previous turn" in ended.stdout
    assert "(200 text_after_failure)" in ended.stdout
    assert "commands failed in the previous turn" in bench.run("runs", "show", "r").stdout
    assert listed(bench)[1] == "200 done (text_after_failure)"


FENCED = "Here it is:\n```xml\nFirst this.\n<set path='a.txt'>x</set>\n<set path='b.txt'>x</set>\n```\n"
FAILS = "<set path='a.txt'><<SEARCH\nnone\nSEARCH\n<<REPLACE\nx\nREPLACE</set>"


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ((f"{FAILS}{GO_ON}", "Wrote it."), "Not done: the change of a.txt failed, and no later command made it"),
        (
            ("<read_file><path>a</path></read_file>", "Done."),
            "Not done: no command was run: 1 unknown or unreadable, 0 in",
        ),
        (
            (FENCED, FENCED),
            "Not done: no command was run: 0 unknown or unreadable, 4 in code fences or quotations, or too many for a reply",
        ),
    ],
)
def test_success_that_the_record_contradicts_is_none(bench, replies, words) -> None:
    bench.script("m", *replies)
    ended = bench.run("act", "Edit.", "--model", "m", "--run", "r", "--yolo")
    assert ended.returncode == 3
    assert words in " ".join(ended.stdout.split())
    assert "changed files: none" in ended.stdout
    assert "turnwright runs show RUN --turns" in ended.stderr
    assert ("Commands in a code fence were not run." in ended.stdout) is (replies == (FENCED, FENCED))


def test_an_act_that_changed_nothing_says_so_and_an_answer_does_not(bench) -> None:
    bench.script("m", "It is so.", "It is so.", "It is so.")
    assert "changed files: none" in bench.run("act", "Look.", "--model", "m").stdout
    assert "changed files" not in bench.run("ask", "Why?", "--model", "m").stdout
    printed = bench.run("act", "Look.", "--model", "m", "--json").stdout.splitlines()
    *_, notice, state = map(json.loads, printed)
    assert (notice["notice"]["source"], notice["notice"]["text"]) == ("changes", "changed files: none")
    assert state["run_state"]["loop"]["status"] == 200


def test_what_a_loop_changed_is_listed_at_its_end(bench) -> None:
    (bench.project / "b.txt").write_text("one\ntwo\n")
    (bench.project / "c.txt").write_text("x\n")
    (bench.project / "gone.txt").write_text("x\n")
    (bench.project / "moved.txt").write_text("x\ny\n")
    edits = '<set path="a.txt">1\n2\n3\n</set><set path="new.txt">1\n2\n</set><rm path="gone.txt"/>'
    more = '<set path="new.txt"><<APPEND\n3\nAPPEND</set><mv path="moved.txt" to="there.txt"/>'
    more += "<sh>echo 4 >> new.txt; echo x > made.txt; sed -i s/one/1/ b.txt; rm c.txt</sh>"
    bench.script("m", edits + GO_ON, more + GO_ON, DONE)
    ended = bench.run("act", "Edit.", "--model", "m", "--run", "r", "--yolo")
    assert ended.returncode == 0
    told = ended.stdout.partition("changed files:\n")[2].splitlines()
    assert told == [
        "  changed a.txt (+3 -1)",
        "  changed b.txt",
        "  removed c.txt",
        "  removed gone.txt (+0 -1)",
        "  created made.txt",
        "  removed moved.txt (+0 -2)",
        "  created new.txt",
        "  created there.txt (+2 -0)",
    ]


def test_a_loop_that_changed_much_lists_all_of_it(alone) -> None:
    text = "".join(f"line {number} of a file that is long\n" for number in range(8000))
    edits = [f'<set path="f{number}.txt">{text}</set>' + GO_ON for number in range(5)]
    alone.script("m", *edits, DONE)
    alone.environment["TURNWRIGHT_CONTEXT_m"] = "4000000"
    ended = alone.run("act", "Edit.", "--model", "m", "--run", "r", "--yolo")
    told = ended.stdout.partition("changed files:\n")[2].splitlines()
    assert told == [f"  created f{number}.txt (+8000 -0)" for number in range(5)]
    turns = alone.run("runs", "show", "r", "--turns").stdout
    assert [number for number in range(5) if f"set f{number}.txt 200" in turns] == list(range(5))


@pytest.mark.parametrize("command", ["<sh>echo \x1b</sh>", "<sh>true</sh>"], ids=["refused", "rejected"])
def test_a_shell_command_that_was_not_started_is_not_said_to_have_changed_anything(bench, command) -> None:
    bench.script("m", command + GO_ON, DONE)
    ended = bench.run("act", "Edit.", "--model", "m", "--run", "r")
    if ended.returncode == 6:
        ended = bench.run("resolve", "r", "--reject")
    assert "Done (200" in ended.stdout or "Stopped" in ended.stdout
    assert "shell command" not in ended.stdout


def test_what_was_changed_before_a_decision_is_listed_by_who_decides(bench) -> None:
    bench.script("m", EDIT.replace("200", "102"), DONE)
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    assert "  changed a.txt (+2 -1)" in bench.run("resolve", "r", "--accept").stdout


def test_a_fault_of_a_vendor_is_reported_once_and_no_reply_broke_off(alone) -> None:
    alone.environment["TURNWRIGHT_MODEL_x"] = "openai/x"
    alone.environment["OPENAI_BASE_URL"] = "http://127.0.0.1:1/v1"
    alone.environment["TURNWRIGHT_VENDOR_CONNECT_DEADLINE_S"] = "1"
    ended = alone.run("act", "Say it.", "--model", "x", "--run", "r")
    assert ended.returncode == 5
    assert "broke off" not in ended.stdout
    assert ended.stdout.count("vendor_unreachable") == 1
