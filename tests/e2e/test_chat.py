"""A session at a real (pseudo) terminal: many turns, keys, commands, terminals of all sorts."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess

import pytest

from e2e.cli_process import WAIT_S, Bench, serving
from e2e.terminals import Terminal, terminal
from e2e.test_abort import pid_of, wait_until
from living import is_alive

QUESTION = r"a\[l\]l\?"
SLOW = "=== reply chunk_chars=4 delay_ms=100 ===\nThis goes on " + "and on " * 400
EDIT = 'I will edit it.\n<set path="a.txt">new\n</set>\n<update status="102">Edited.</update>'
DONE = '<update status="200">All is done.</update>'
ITEMS = [
    {"content": "read", "priority": "high", "status": "completed"},
    {"content": "write the parser", "priority": "medium", "status": "in_progress"},
]
PLAN = f'<set_plan kind="items">{json.dumps(ITEMS)}</set_plan>'
LINES = "".join(f"line {number}\n" for number in range(30))


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", text)


def ready(person: Terminal) -> None:
    """Wait for the next prompt of the session."""
    person.expect_text(r"(?s)(\x1b\[\?2004h.*\x1b\[\?25h|> )$")


def leave(person: Terminal) -> None:
    ready(person)
    person.type("\x04")
    assert person.end() == 0


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """With one model only: a session takes it without being told."""
    with serving(tmp_path_factory.mktemp("stack"), "m") as root:
        yield root


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    made = Bench(tmp_path, stack=stack)
    (made.project / "a.txt").write_text("old\n")
    return made


def test_a_session_has_many_turns_shows_commands_by_what_became_of_them_and_can_be_continued(bench) -> None:
    bench.script("m", EDIT, DONE)
    with terminal(bench) as person:
        ready(person)
        person.type("edit it\r")
        person.expect_text(QUESTION)
        assert "+new" in plain(person.seen)
        assert "by [h]unk" not in plain(person.seen)
        person.type("a\r")
        person.expect_text("changed files:")
        ready(person)
        shown = plain(person.seen)
        assert "<update" not in shown
        assert "<set" not in shown
        assert shown.count("All is done.") == 1
        assert "Done (200" not in shown
        assert "  Edited." in shown
        assert "changed a.txt (+1 -1)" in shown
        assert "set a.txt  (+1 -1)" in shown
        assert "edit a.txt" not in person.screen()
        bench.script("m", 'It is <b>new</b>.\n<update status="200">Told.</update>')
        person.type("what is it now?\r")
        person.expect_text("Told")
        ready(person)
        assert "It is <b>new</b>." in plain(person.seen)
        assert "context [" in plain(person.seen)
        person.type("/cost\r")
        person.expect_text(r"(?s)used 3 turns.*m: [\d,]+ tokens in.*, [\d,]+ out")
        ready(person)
        person.type("/diff\r")
        person.expect_text(r"(?s)turn 1: set a\.txt.*\+new")
        ready(person)
        person.type("/undo\r")
        person.expect_text(r"(?s)Undid turn 1:.*edit a\.txt")
        ready(person)
        assert (bench.project / "a.txt").read_text() == "old\n"
        person.type("/undo\r")
        person.expect_text("all were taken back")
        leave(person)
        run = re.search(r"--run (\S+)", plain(person.seen))
    assert run
    bench.script("m", f'{PLAN}<update status="200">Again.</update>')
    with terminal(bench, "-r", run[1][:-1]) as person:
        person.expect_text(f"(?s)Continuing {run[1]}.*Told")
        ready(person)
        person.type("once more\r")
        person.expect_text("Again")
        ready(person)
        assert "plan 1/2: write the parser" in plain(person.seen)
        person.type("/plan\r")
        person.expect_text(r"\[~\] write the parser")
        ready(person)
        bench.script("m", '<update status="200">Otherwise.</update>')
        person.type("/retry\r")
        person.expect_text(r"(?s)Files stay as they are.*Otherwise")
        ready(person)
        person.type("/rewind 1\r")
        person.expect_text("as it was at the end of turn 1")
        ready(person)
        person.type("/rewind 99\r")
        person.expect_text("No turn 99")
        ready(person)
        person.type("/quit\r")
        assert person.end() == 0


def test_some_hunks_are_accepted_and_the_model_reads_why_not_the_others(bench) -> None:
    (bench.project / "a.txt").write_text(LINES)
    new = LINES.replace("line 2\n", "two\n").replace("line 15\n", "fifteen\n").replace("line 28\n", "28\n")
    bench.script("m", f'<set path="a.txt">{new}</set>\n<update status="102">Edited.</update>', DONE)
    with terminal(bench) as person:
        ready(person)
        person.type("edit it\r")
        person.expect_text(QUESTION)
        assert "by [h]unk" in plain(person.seen)
        for typed, shown in (("h", "hunk 1 of 3"), ("x", "Answer with y"), ("y", "hunk 2 of 3"), ("n", "hunk 3 of 3")):
            person.type(f"{typed}\r")
            person.expect_text(rf"(?s){shown}.*skip the rest")
        person.type("a\r")
        person.expect_text("Why leave out the others")
        person.type("Fifteen is a name.\r")
        person.expect_text("All is done")
        leave(person)
    assert (bench.project / "a.txt").read_text() == new.replace("fifteen\n", "line 15\n")
    shown = bench.run("runs", "--json").stdout
    packet = bench.run("runs", "show", json.loads(shown.splitlines()[0])["run"], "--packet", "2").stdout
    assert "The reviewer said:" in packet
    assert "\n1 of 3 hunks were left out. Fifteen is a name.\n!!!log://turn_1/set/" in packet


def test_a_key_stops_the_turn_and_the_session_goes_on(bench) -> None:
    with terminal(bench) as person:
        for key in ("\x1b", "\x03"):
            ready(person)
            bench.script("m", SLOW)
            person.type("go on\r")
            person.expect_text("and on and")
            person.type("and nowx\x7f")
            person.type(key)
            person.expect_text("Stopped")
            ready(person)
            bench.script("m", '<update status="200">After it.</update>')
            person.type("?\r")
            person.expect_text("> and now\\?(?s:.*)After it")
        leave(person)


def test_a_question_can_be_left_for_later(bench) -> None:
    bench.script("m", EDIT, *[DONE] * 4)
    with terminal(bench) as person:
        for key, typed in (("\x1b", "edit it"), ("\x03", "and more"), ("\x04", "/decide")):
            ready(person)
            person.type(f"{typed}\r")
            person.expect_text(QUESTION)
            assert ("one earlier message must finish first" in person.seen) == (typed == "and more")
            person.type(key)
            person.expect_text("/decide asks again")
        assert (bench.project / "a.txt").read_text() == "old\n"
        leave(person)


def test_what_is_mistyped_is_answered_with_what_was_meant(bench) -> None:
    bench.script("m", DONE)
    with terminal(bench) as person:
        ready(person)
        for typed, told in (
            ("/modle", r"did you mean /model\?"),
            ("/model mm", r"did you mean m\?"),
            ("/run nobody", "nobody"),
            ("/undo", "There is no run yet"),
            ("/retry", "There is no run yet"),
            ("/undo 99999999999", "by its number"),
            ("/help", "Alt-Enter"),
        ):
            person.type(f"{typed}\r")
            person.expect_text(told)
            ready(person)
        person.type("\x03")
        leave(person)


def test_a_screen_of_20_columns_shows_whole_words_of_a_diff_and_a_question(bench) -> None:
    bench.script("m", EDIT, DONE)
    with terminal(bench, columns=20) as person:
        ready(person)
        person.type("do it\r")
        person.expect_text(QUESTION)
        screen = person.screen().splitlines()
        assert max(map(len, screen)) <= 20
        assert {"-old", "+new"} <= set(screen)
        assert " ".join(screen).endswith("[e]dit, always this [k]ind (a.txt), accept a[l]l?")
        person.type("a\r")
        person.expect_text("changed")
        leave(person)


def test_a_simple_terminal_serves(bench) -> None:
    bench.script("m", DONE)
    with terminal(bench, kind="dumb") as person:
        ready(person)
        person.type("do it\r")
        person.expect_text("All is done")
        ready(person)
        # A simple terminal shows the prompt before it listens to single keys.
        for _ in range(60):
            person.type("\x04")
            with contextlib.suppress(subprocess.TimeoutExpired):
                person.process.wait(1)
                break
        assert person.end() == 0


@pytest.mark.parametrize(
    ("reply", "typed", "shown"), [(SLOW, "", ""), (SLOW, "go on\r", "and on"), (EDIT, "edit it\r", QUESTION)]
)
def test_a_session_whose_terminal_vanishes_ends_and_its_run_goes_on_elsewhere(bench, reply, typed, shown) -> None:
    bench.script("m", reply, DONE)
    with terminal(bench) as person:
        ready(person)
        person.type(typed)
        person.expect_text(shown)
        person.vanish()
        assert person.process.wait(WAIT_S) == 129
    statuses = [json.loads(line)["status"] for line in bench.run("runs", "--json").stdout.splitlines()]
    assert statuses == {"": [], "go on\r": [102], "edit it\r": [202]}[typed]


def test_a_terminal_that_vanishes_takes_the_commands_with_it_and_loses_nothing(tmp_path) -> None:
    bench = Bench(tmp_path)
    bench.script("m", '<sh>echo $$ > pid; sleep 60</sh><update status="102">Ran it.</update>')
    bench.environment["TURNWRIGHT_DRAIN_S"] = "1"
    with terminal(bench, "act", "Run it.", "--model", "m", "--run", "r", "--yolo") as person:
        pid = wait_until(lambda: pid_of(bench), "the command")
        person.vanish()
        assert person.process.wait(WAIT_S) == 129
    assert not is_alive(pid)
    assert "102 interrupted" in bench.run("runs").stdout
    bench.script("m", DONE)
    assert bench.run("act", "And now?", "--model", "m", "--run", "r", "--yolo").returncode == 0
    assert bench.run("runs").stdout.splitlines()[1].split("\t")[1] == "200 done"


def test_a_session_needs_a_terminal_and_its_options_stand_behind_commands(bench) -> None:
    done = bench.run()
    assert done.returncode == 2
    assert "turnwright act PROMPT" in done.stderr
    done = bench.run("--yolo", "runs")
    assert done.returncode == 2
    assert "Put --yolo after the command" in done.stderr


def lines_of_watch(bench: Bench, run: str) -> list[str]:
    """What `watch --json` has printed once it is stopped."""
    with bench.running("watch", run, "--json") as watch:
        watch.wait_for("snapshot")
        watch.signal(signal.SIGINT)
        assert watch.end() == 0
        return watch.lines["out"]


def test_a_run_can_be_watched_from_another_terminal_which_stops_nothing(bench) -> None:
    bench.script("m", EDIT, DONE)
    with terminal(bench) as person:
        ready(person)
        person.type("edit it\r")
        person.expect_text(QUESTION)
        shown = bench.run("runs", "--json")
        run = json.loads(shown.stdout.splitlines()[0])["run"]
        with terminal(bench, "watch", run) as other:
            other.expect_text(r"(?s)Ctrl-C leaves.*set wants to change a\.txt")
            assert all(line.startswith("{") for line in lines_of_watch(bench, run))
            person.type("a\r")
            person.expect_text("changed files:")
            other.expect_text("All is done")
            assert "<update" not in other.seen
            other.process.send_signal(signal.SIGINT)
            assert other.end() == 0
        leave(person)
