"""The prompt for a decision, at a real (pseudo) terminal. Rows RU013, RU138; decision C20."""

from __future__ import annotations

import re
import signal

import pytest

from e2e.cli_process import Bench
from e2e.terminals import terminal

QUESTION = r"accept a\[l\]l\?"
EDIT = '<set path="a.txt">new</set><update status="102">Edited.</update>'
TWO = '<set path="a.txt">new</set><set path="b.txt">new</set><update status="102">Edited.</update>'
DONE = '<update status="200">All is done.</update>'


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    made = Bench(tmp_path, stack=stack)
    (made.project / "a.txt").write_text("old\n")
    made.script("m", EDIT, DONE)
    made.script("two", TWO, DONE)
    return made


def test_a_person_sees_the_diff_and_accepts(bench) -> None:
    with terminal(bench, "act", "Edit it.", "--model", "m") as person:
        person.expect_text(QUESTION)
        assert "change a.txt" in person.seen
        assert "+new" in re.sub(r"\x1b\[[0-9;]*m", "", person.seen)
        assert (bench.project / "a.txt").read_text() == "old\n"
        person.type("a\n")
        assert person.end() == 0

    assert (bench.project / "a.txt").read_text() == "new\n"
    assert "All is done." in person.seen


def test_a_rejection_ends_the_loop(bench) -> None:
    with terminal(bench, "act", "Edit it.", "--model", "m") as person:
        person.expect_text(QUESTION)
        person.type("r\n")
        assert person.end() == 4

    assert (bench.project / "a.txt").read_text() == "old\n"


def test_a_rejection_with_a_comment_gives_the_model_another_turn(bench) -> None:
    with terminal(bench, "act", "Edit it.", "--model", "m", "--run", "r") as person:
        person.expect_text(QUESTION)
        person.type("what?\n")
        person.expect_text(rf"(?s)Answer with one of the letters.*{QUESTION}")
        person.type("c\n")
        person.expect_text("comment for the model:")
        person.type("Not this file.\n")
        assert person.end() == 0

    assert (bench.project / "a.txt").read_text() == "old\n"


def test_proposals_come_one_by_one_in_the_order_of_the_reply(bench) -> None:
    # RU138
    with terminal(bench, "act", "Edit them.", "--model", "two") as person:
        person.expect_text(QUESTION)
        assert "change a.txt" in person.seen
        assert "b.txt" not in person.seen.split("proposal:")[1]
        person.type("a\n")
        person.expect_text(rf"(?s)create b\.txt.*{QUESTION}")
        assert (bench.project / "a.txt").read_text() == "new\n"
        assert not (bench.project / "b.txt").exists()
        person.type("a\n")
        assert person.end() == 0

    assert (bench.project / "b.txt").read_text() == "new"


def test_accept_all_asks_no_second_time(bench) -> None:
    with terminal(bench, "act", "Edit them.", "--model", "two") as person:
        person.expect_text(QUESTION)
        person.type("l\n")
        assert person.end() == 0
        assert person.screen().count("[a]ccept") == 1
    assert (bench.project / "b.txt").read_text() == "new"


def test_a_kind_that_is_always_accepted_is_not_asked_about_again_and_others_are(bench) -> None:
    bench.script(
        "three",
        '<set path="src/a.txt">new</set><sh>true</sh><set path="src/b.txt">new</set><update status="102">Edited.</update>',
        DONE,
    )
    with terminal(bench, "act", "Edit them.", "--model", "three") as person:
        person.expect_text(QUESTION)
        person.type("k\n")
        person.expect_text(rf"(?s)time limit.*{QUESTION}")
        person.type("a\n")
        assert person.end() == 0
        assert person.screen().count("[a]ccept") == 2
    assert (bench.project / "src/b.txt").read_text() == "new"


@pytest.mark.parametrize("key", ["\x04", "\x03", "\x1b"], ids=["Ctrl-D", "Ctrl-C", "Esc"])
def test_a_key_leaves_the_decision_for_later(bench, key) -> None:
    with terminal(bench, "act", "Edit it.", "--model", "m", "--run", "r") as person:
        person.expect_text(QUESTION)
        person.type(key)
        assert person.end() == 6

    assert "turnwright resolve r log://turn_1/set/" in person.seen
    assert bench.run("resolve", "r", "--accept").returncode == 0


def test_what_was_typed_before_the_question_is_no_answer(bench) -> None:
    bench.script("later", "=== reply after_ms=700 ===\n" + EDIT, DONE)
    with terminal(bench, "act", "Edit it.", "--model", "later") as person:
        person.expect_text("turn 1")
        person.type("a\n")
        person.expect_text(QUESTION)
        assert (bench.project / "a.txt").read_text() == "old\n"
        person.type("r\n")
        assert person.end() == 4


def test_an_editor_has_the_keyboard_to_itself(bench, tmp_path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(
        '#!/bin/sh\nstty -a | grep -q -e -icanon && exit 1\nprintf "text: "\nread -r line\necho "$line" > "$1"\n'
    )
    editor.chmod(0o755)
    bench.environment["EDITOR"] = str(editor)
    with terminal(bench, "act", "Edit it.", "--model", "m", "--run", "r") as person:
        person.expect_text(QUESTION)
        person.type("e\r")
        person.expect_text("text: ")
        person.type("typed by hand\n")
        assert person.end() == 0
    assert (bench.project / "a.txt").read_text() == "typed by hand\n"
    bench.script("m", EDIT, DONE)
    assert bench.run("act", "Again.", "--model", "m", "--run", "r").returncode == 6
    with terminal(bench, "resolve", "r", "--edit") as person:
        person.expect_text("text: ")
        person.type("typed again\n")
        assert person.end() == 0
    assert (bench.project / "a.txt").read_text() == "typed again\n"


def test_an_answer_counts_for_one_question(bench) -> None:
    with terminal(bench, "act", "Edit them.", "--model", "two") as person:
        person.expect_text(QUESTION)
        person.type("a\ra\r")
        person.expect_text(rf"(?s)create b\.txt.*{QUESTION}")
        person.type("r\r")
        assert person.end() == 4
    assert not (bench.project / "b.txt").exists()


def test_a_signal_at_the_question_ends_the_run(bench) -> None:
    with terminal(bench, "act", "Edit it.", "--model", "m") as person:
        person.expect_text(QUESTION)
        person.process.send_signal(signal.SIGINT)
        assert person.end() == 4

    assert (bench.project / "a.txt").read_text() == "old\n"


def test_a_decision_elsewhere_ends_the_question(bench) -> None:
    with terminal(bench, "act", "Edit it.", "--model", "m", "--run", "r") as person:
        person.expect_text(QUESTION)
        elsewhere = bench.run("resolve", "r", "--accept", "--json")
        assert elsewhere.returncode == 0
        assert person.end() == 0

    assert "Decided in another terminal: " in person.seen
