"""Lists in pipes and at terminals, the turns of a run, models that go, and `resolve` that asks. Rows RU013, RU244."""

from __future__ import annotations

import json
import re
import signal

import pytest

from e2e.cli_process import Bench, loop_status
from e2e.test_cli_terminal import QUESTION, terminal

SUMMARY = "All\tis\ndone: C:\\new, \x1b[31mred and " + "long " * 40
EDIT = '<set path="a.txt">new</set><update status="102">Edited.</update>'
TWO = '<set path="a.txt">new</set><set path="b.txt">new</set><update status="102">Edited.</update>'
DONE = '<update status="200">All is done.</update>'


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    made = Bench(tmp_path, stack=stack)
    (made.project / "a.txt").write_text("old\n")
    made.script("m", EDIT, DONE)
    made.script("two", TWO, DONE)
    made.script("odd", f'<update status="200">{SUMMARY}</update>')
    return made


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def unescaped(value: str) -> str:
    """What a value was before it was written for a pipe."""
    marks = {"t": "\t", "n": "\n", "\\": "\\", "x1b": "\x1b"}
    return re.sub(r"\\(x1b|.)", lambda found: marks[found[1]], value)


@pytest.mark.parametrize("columns", ["20", "500"])
def test_a_table_in_a_pipe_has_a_row_a_line_and_every_value_whole(bench, columns) -> None:
    bench.run("act", SUMMARY, "--model", "odd", "--run", "r")
    heads, row = rows(bench.run("runs", COLUMNS=columns).stdout)
    assert heads == ["run", "status", "turns", "model", "changed", "title"]
    assert row[:4] == ["r", "200 done", "1", "odd"]
    assert unescaped(row[5]) == " ".join(SUMMARY.split())[:200]


def test_deliveries_are_listed_of_every_state_and_of_one(bench) -> None:
    bench.run("webhook", "set", "ci", "https://nowhere.invalid/hook")
    bench.run("act", "Say.", "--model", "odd", "--run", "r")
    for asked in ((), ("--state", "pending")):
        heads, row = rows(bench.run("webhook", "deliveries", *asked).stdout)
        assert heads[0] == "id"
        assert row[2:6] == ["ci", "r", "loop_ended", "pending"]
    assert not bench.run("webhook", "deliveries", "--state", "dead").stdout.splitlines()[1:]


def test_every_table_has_as_many_values_in_each_row_as_names_of_columns(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r", COLUMNS="20")
    bench.script("sh", "<sh>echo 'a\tb' |\ncat</sh>" + EDIT, DONE)
    bench.run("act", "Run it.", "--model", "sh", "--run", "s")
    for command in ("runs", "inbox", "models"):
        table = rows(bench.run(command, COLUMNS="20", NO_COLOR="1").stdout)
        assert len(table) > 1
        assert {len(row) for row in table} == {len(table[0])}
    (row,) = (row for row in rows(bench.run("inbox").stdout) if row[1] == "s")
    assert unescaped(row[4]) == "run echo 'a\tb' |\ncat"


def test_what_is_said_to_people_stands_in_no_pipe(bench) -> None:
    for command in ("runs", "inbox"):
        empty = bench.run(command)
        assert (len(rows(empty.stdout)), len(empty.stderr.splitlines())) == (1, 1)


def test_a_terminal_folds_a_table_and_no_escape_reaches_it(bench) -> None:
    bench.run("act", SUMMARY, "--model", "odd", "--run", "r")
    with terminal(bench, "runs") as person:
        assert person.end() == 0
    assert "All is" in person.seen
    assert "\x1b[31m" not in person.seen


def test_tabs_of_an_answer_arrive_in_a_pipe(bench) -> None:
    assert "All\tis\ndone: C:\\new" in bench.run("ask", "Say it.", "--model", "odd").stdout


def test_the_turns_of_a_run_show_each_command_and_how_it_ended(bench) -> None:
    bench.script("m", '<get path="gone.txt"/><update status="102">Looked.</update>', DONE)
    bench.run("act", "Look.", "--model", "m", "--run", "r")
    shown = bench.run("runs", "show", "r", "--turns").stdout
    found = [line for line in shown.splitlines() if line.startswith(("turn ", "  "))]
    assert [line[:7] for line in found if line.startswith("turn ")] == ["turn 1:", "turn 2:"]
    counted = [
        line.partition(" tokens expected by ")[2].partition(",")[0] for line in found if line.startswith("turn ")
    ]
    assert counted == ["an estimate", "the turn before"]
    assert "  ✗ get gone.txt 404 not_found" in shown
    assert "  ✓ update 102  Looked." in shown
    assert "  ✓ update 200  All is done." in shown
    assert "turn 1" not in bench.run("runs", "show", "r").stdout


def test_a_model_is_removed_and_cannot_be_named_any_more(bench) -> None:
    bench.run("models")
    again = bench.run("models", "remove", "odd")
    assert "TURNWRIGHT_MODEL_odd is set here" in again.stderr
    del bench.environment["TURNWRIGHT_MODEL_odd"]
    assert "odd" not in [row[0] for row in rows(bench.run("models").stdout)]
    gone = bench.run("models", "remove", "nobody")
    assert (gone.returncode, "There is no model 'nobody'" in gone.stderr) == (2, True)


def test_a_model_is_added_and_corrected(bench) -> None:
    added = bench.run("models", "add", "ours", "scripted/m", "--context", "8192", "--no-images")
    options = ("--model", "scripted/odd", "--output", "1000", "--tools")
    corrected = bench.run("models", "set", "ours", *options)
    bare = bench.run("models", "add", "bare", "scripted/m")
    listed = {row[0]: row[1:5] for row in rows(bench.run("models").stdout)}
    written = bench.run("models", "set", "ours", "--context", "0", "--images", "--json")
    unknown = bench.run("models", "add", "other", "scriptd/m")
    missing = bench.run("models", "set", "our", "--context", "1")

    assert (added.stdout, corrected.stdout, bare.stdout) == (
        "ours: scripted/m, context 8,192, no images\n",
        "ours: scripted/odd, context 8,192, output 1,000, tools, no images\n",
        "bare: scripted/m, context as its vendor says\n",
    )
    assert listed["ours"] == ["scripted/odd", "8,192", "1,000", "tools, no images"]
    # What the alias does not say, its vendor does.
    assert listed["bare"] == ["scripted/m", "32,768 (assumed)", "", "no tools"]
    assert json.loads(written.stdout) == {
        "alias": "ours", "vendor_model": "scripted/odd", "output_tokens_max": 1000,
        "capabilities": {"tools": True, "images": True},
    }  # fmt: skip
    assert (unknown.returncode, "did you mean scripted?" in unknown.stderr) == (2, True)
    assert (missing.returncode, "did you mean ours?" in missing.stderr) == (2, True)


def test_a_model_needs_no_alias(bench) -> None:
    done = bench.run("act", "Say it.", "--model", "scripted/odd", "--run", "direct")
    unknown = bench.run("act", "Say it.", "--model", "scriptd/odd", "--run", "other")

    assert done.returncode == 0
    assert (unknown.returncode, "did you mean scripted?" in unknown.stderr) == (2, True)
    assert "other" not in bench.run("runs").stdout


# `resolve` that asks


def test_resolve_shows_what_waits_and_asks_for_a_decision(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    with terminal(bench, "resolve", "r") as person:
        person.expect_text(QUESTION)
        assert "change a.txt" in person.seen
        assert "+new" in re.sub(r"\x1b\[[0-9;]*m", "", person.seen)
        person.type("a\n")
        assert person.end() == 0
    assert (bench.project / "a.txt").read_text() == "new\n"


@pytest.mark.parametrize("leaving", ["\x04", "\x03"], ids=["ctrl-d", "ctrl-c"])
def test_who_leaves_the_question_decides_nothing_and_stops_nothing(bench, leaving) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    with terminal(bench, "resolve", "r") as person:
        person.expect_text(QUESTION)
        if leaving == "\x03":
            person.process.send_signal(signal.SIGINT)
        else:
            person.type(leaving)
        assert person.end() == 6
    assert (bench.project / "a.txt").read_text() == "old\n"
    assert "change a.txt" in bench.run("inbox").stdout
    done = bench.run("resolve", "r", "--accept", "--json")
    assert (done.returncode, loop_status(done.stdout)) == (0, 200)


def test_resolve_asks_for_the_proposal_that_is_named_and_then_for_what_comes(bench) -> None:
    bench.run("act", "Edit it.", "--model", "two", "--run", "r")
    wrong = bench.run("resolve", "r", "log://turn_1/set/c.txt", "--accept")
    assert wrong.returncode == 2
    with terminal(bench, "resolve", "r", "log://turn_1/set/a.txt") as person:
        person.expect_text(QUESTION)
        person.type("a\n")
        person.expect_text(f"create b.txt(?s:.*){QUESTION}")
        person.type("r\n")
        assert person.end() == 4
    assert not (bench.project / "b.txt").exists()


def test_a_path_that_does_not_wait_is_reported_with_those_that_do(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    with terminal(bench, "resolve", "r", "log://turn_1/set/c.txt") as person:
        assert person.end() == 2
    assert "log://turn_1/set/a.txt" in person.seen


def test_without_a_terminal_resolve_asks_nobody(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    left = bench.run("resolve", "r")
    assert (left.returncode, "--accept or --reject" in left.stderr) == (2, True)


def test_a_model_gets_a_price_and_keeps_it(bench) -> None:
    added = bench.run("models", "add", "paid", "scripted/m", "--price", "0.5/0.05/2")
    assert added.stdout == "paid: scripted/m, context as its vendor says, $0.5/0.05/2\n"
    bench.run("models", "set", "paid", "--context", "9000")
    kept = json.loads(bench.run("models", "set", "paid", "--price", "1/3", "--json").stdout)
    assert kept["price"] == {"input_usd": 1, "cached_usd": 1, "output_usd": 3}
    assert kept["context_length"] == 9000
    wrong = bench.run("models", "add", "paid", "scripted/m", "--price", "cheap")
    assert (wrong.returncode, "such as 2.5/0.25/10" in wrong.stderr) == (2, True)
