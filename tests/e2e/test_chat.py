"""A session at a real (pseudo) terminal: many turns, keys, commands, terminals of all sorts."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess

import pytest

from e2e.cli_process import WAIT_S, Bench
from e2e.terminals import Terminal, terminal

QUESTION = r"accept a\[l\]l\?"
READY = r"\n?> (\x1b\[[0-9;?]*[a-zA-Z])*$"
SLOW = "=== reply chunk_chars=4 delay_ms=100 ===\nThis goes on " + "and on " * 400
EDIT = 'I will edit it.\n<set path="a.txt">new\n</set>\n<update status="102">Edited.</update>'


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", text)


def ready(person: Terminal) -> None:
    """Wait for the next prompt of the session."""
    person.expect_text(r"(?s)(\x1b\[\?2004h.*\x1b\[\?25h|> )$")


@pytest.fixture
def bench(tmp_path) -> Bench:
    made = Bench(tmp_path)
    (made.project / "a.txt").write_text("old\n")
    return made


def test_a_session_has_many_turns_shows_commands_by_what_became_of_them_and_can_be_continued(bench) -> None:
    bench.script("m", EDIT, '<update status="200">All is done.</update>')
    with terminal(bench) as person:
        ready(person)
        person.type("edit it\r")
        person.expect_text(QUESTION)
        assert "+new" in plain(person.seen)
        person.type("a\r")
        person.expect_text("changed files:")
        ready(person)
        shown = plain(person.seen)
        assert "<update" not in shown
        assert "<set" not in shown
        assert shown.count("All is done.") == 1
        assert "changed a.txt (+1 -1)" in shown
        bench.script("m", 'It is <b>new</b>.\n<update status="200">Told.</update>')
        person.type("what is it now?\r")
        person.expect_text("Told")
        ready(person)
        assert "It is <b>new</b>." in plain(person.seen)
        assert "context [" in plain(person.seen)
        person.type("/cost\r")
        person.expect_text("used 3 turns")
        ready(person)
        person.type("\x04")
        assert person.end() == 0
        run = re.search(r"--run (\S+)", plain(person.seen))
    assert run
    bench.script("m", '<update status="200">Again.</update>')
    with terminal(bench, "-c") as person:
        person.expect_text("Continuing " + run[1])
        ready(person)
        person.type("once more\r")
        person.expect_text("Again")
        ready(person)
        person.type("/quit\r")
        assert person.end() == 0
    assert (bench.project / "a.txt").read_text() == "new\n"


@pytest.mark.parametrize("key", ["\x1b", "\x03"])
def test_a_key_stops_the_turn_and_the_session_goes_on(bench, key) -> None:
    bench.script("m", SLOW)
    with terminal(bench) as person:
        ready(person)
        person.type("go on\r")
        person.expect_text("and on and")
        person.type(key)
        person.expect_text("Stopped")
        ready(person)
        bench.script("m", '<update status="200">After it.</update>')
        person.type("and now?\r")
        person.expect_text("After it")
        ready(person)
        person.type("\x04")
        assert person.end() == 0


@pytest.mark.parametrize("key", ["\x1b", "\x03", "\x04"])
def test_a_question_can_be_left_for_later(bench, key) -> None:
    bench.script("m", EDIT, '<update status="200">All is done.</update>')
    with terminal(bench) as person:
        ready(person)
        person.type("edit it\r")
        person.expect_text(QUESTION)
        person.type(key)
        person.expect_text("A proposal still waits")
        ready(person)
        assert (bench.project / "a.txt").read_text() == "old\n"
        person.type("\x04")
        assert person.end() == 0


def test_what_is_mistyped_is_answered_with_what_was_meant(bench) -> None:
    bench.script("m", '<update status="200">Done.</update>')
    with terminal(bench) as person:
        ready(person)
        for typed, told in (
            ("/modle", r"Did you mean /model\?"),
            ("/model mm", r"Did you mean m\?"),
            ("/run nobody", "nobody"),
        ):
            person.type(f"{typed}\r")
            person.expect_text(told)
            ready(person)
        person.type("/help\r")
        person.expect_text("Alt-Enter")
        ready(person)
        person.type("\x03")
        ready(person)
        person.type("\x04")
        assert person.end() == 0


@pytest.mark.parametrize(("columns", "kind"), [(20, "xterm-256color"), (100, "dumb")])
def test_small_and_simple_terminals_serve(bench, columns, kind) -> None:
    bench.script("m", '<update status="200">Done.</update>')
    with terminal(bench, columns=columns, kind=kind) as person:
        ready(person)
        person.type("do it\r")
        person.expect_text("changed|Done")
        ready(person)
        # A simple terminal shows the prompt before it listens to single keys.
        for _ in range(60):
            person.type("\x04")
            with contextlib.suppress(subprocess.TimeoutExpired):
                person.process.wait(1)
                break
        assert person.end() == 0


def test_a_session_whose_terminal_vanishes_ends(bench) -> None:
    bench.script("m", SLOW)
    with terminal(bench) as person:
        ready(person)
        person.vanish()
        person.process.wait(WAIT_S)


def test_without_a_terminal_the_way_is_shown(bench) -> None:
    done = bench.run()
    assert done.returncode == 2
    assert "turnwright act PROMPT" in done.stderr


def test_options_of_a_session_do_not_stand_before_a_command(bench) -> None:
    done = bench.run("--yolo", "runs")
    assert done.returncode == 2
    assert "behind the command" in done.stderr


def test_a_run_can_be_watched_from_another_terminal_which_stops_nothing(bench) -> None:
    bench.script("m", EDIT, '<update status="200">All is done.</update>')
    with terminal(bench) as person:
        ready(person)
        person.type("edit it\r")
        person.expect_text(QUESTION)
        shown = bench.run("runs", "--json")
        run = json.loads(shown.stdout.splitlines()[0])["run"]
        with terminal(bench, "watch", run) as other:
            other.expect_text("Ctrl-C leaves")
            person.type("a\r")
            person.expect_text("changed files:")
            other.expect_text("All is done")
            assert "<update" not in other.seen
            other.process.send_signal(signal.SIGINT)
            assert other.end() == 0
        ready(person)
        person.type("\x04")
        assert person.end() == 0
