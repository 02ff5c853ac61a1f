"""The inbox and decisions with other content, as a shell sees them. Rows RU013, RU232, RU244; architecture 15."""

from __future__ import annotations

import json
import signal
import stat

import pytest

from e2e.cli_process import PORTS, Bench, json_lines, loop_status
from e2e.test_cli_terminal import QUESTION, terminal

EDIT = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>\n<update status="102">Edited.</update>'
RUN = '<sh>touch one</sh><update status="102">Ran.</update>'
ASK = '<ask_user question="Which one?">left, right</ask_user><update status="102">Asked.</update>'
DONE = '<update status="200">All is done.</update>'
PATH = "log://turn_1/set/a.txt"


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    return filled(Bench(tmp_path, stack=stack))


@pytest.fixture
def alone(tmp_path) -> Bench:
    return filled(Bench(tmp_path))


def filled(made: Bench) -> Bench:
    (made.project / "a.txt").write_text("old\n")
    made.script("m", EDIT, DONE, DONE)
    made.script("sh", RUN, DONE, DONE)
    made.script("ask", ASK, DONE, DONE)
    return made


def editor(bench: Bench, script: str) -> str:
    """An editor that does this to the file it is given."""
    file = bench.root / "editor"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def test_the_inbox_lists_what_waits_in_every_run(bench) -> None:
    assert bench.run("inbox").stderr == "Nothing waits for a decision.\n"
    bench.run("act", "Edit it.", "--model", "m", "--run", "r1")
    bench.run("act", "Run it.", "--model", "sh", "--run", "r2")

    table = bench.run("inbox").stdout
    lines = json_lines(bench.run("inbox", "--json").stdout)

    assert "change a.txt" in table
    assert "run touch one" in table
    assert [(one["run"], one["proposal"]["path"]) for one in lines] == [
        ("r1", PATH),
        ("r2", "log://turn_1/sh/touch_one"),
    ]


def test_the_inbox_of_all_projects_is_seen_from_any_place(alone) -> None:
    alone.run("act", "Edit it.", "--model", "m", "--run", "r1")
    other = alone.root / "other"
    other.mkdir()

    here = alone.run("inbox", "--project", str(other), "--json")
    everywhere = alone.run("inbox", "--project", str(other), "--all", "--json")

    assert (here.returncode, here.stdout) == (0, "")
    assert [one["run"] for one in json_lines(everywhere.stdout)] == ["r1"]


def test_a_watch_tells_what_comes_and_who_decided_it_until_ctrl_c(alone) -> None:
    with alone.running("serve", *PORTS) as served:
        served.wait_for("executor", "err")
        with alone.running("inbox", "--watch") as watching, alone.running("inbox", "--watch", "--json") as lines:
            lines.wait_for("complete")
            alone.run("act", "Edit it.", "--model", "m", "--run", "r1")
            watching.wait_for(r"^\+ .*/r1 log://turn_1/set/a.txt: change a.txt$")
            alone.run("resolve", "r1", "--accept")
            watching.wait_for(r"^- .*/r1 log://turn_1/set/a.txt: accepted by operator$")
            for process in (watching, lines):
                process.signal(signal.SIGINT)
                assert process.end() == 0
        messages = [json.loads(line) for line in lines.lines["out"]]
        assert [len(one.get("pending", ())) for one in messages if "decided" not in one][-1:] == [1]
        assert messages[-1]["decided"][0]["decision"]["principal"] == "operator"


def test_a_proposal_is_accepted_with_the_content_of_a_file(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    (bench.root / "mine.txt").write_bytes(b"mine\r\nno newline at the end")

    done = bench.run("resolve", "r", "--content-file", str(bench.root / "mine.txt"), "--json")

    assert (done.returncode, loop_status(done.stdout)) == (0, 200)
    assert (bench.project / "a.txt").read_bytes() == b"mine\r\nno newline at the end"


def test_content_may_be_named_by_its_path_and_come_from_standard_input(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")

    wrong = bench.run("resolve", "r", PATH, "--content-file", "b.txt=-", stdin="mine\n")
    done = bench.run("resolve", "r", PATH, "--accept", "--content-file", "a.txt=-", stdin="mine\n")

    assert (wrong.returncode, "does not write b.txt" in wrong.stderr) == (2, True)
    assert done.returncode == 0
    assert (bench.project / "a.txt").read_text() == "mine\n"


def test_a_proposal_is_edited_in_the_editor_and_accepted(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    opened = editor(bench, 'echo "$(cat "$1") and mine" > "$1"')

    done = bench.run("resolve", "r", "--edit", "--json", EDITOR=opened)

    assert (done.returncode, loop_status(done.stdout)) == (0, 200)
    assert (bench.project / "a.txt").read_text() == "new and mine\n"


def test_a_command_is_edited_in_the_editor(bench) -> None:
    bench.run("act", "Run it.", "--model", "sh", "--run", "r")

    done = bench.run("resolve", "r", "--edit", EDITOR=editor(bench, "sed -i s/one/two/ $1"))

    assert done.returncode == 0
    assert sorted(path.name for path in bench.project.iterdir() if path.is_file()) == ["a.txt", "two"]


def test_what_an_editor_leaves_as_it_was_is_accepted_as_proposed(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")

    done = bench.run("resolve", "r", "--edit", EDITOR="true")

    assert done.returncode == 0
    assert (bench.project / "a.txt").read_text() == "new\n"


@pytest.mark.parametrize(("command", "exit_code"), [("false", 5), ("/no/such/editor", 2)])
def test_an_editor_that_fails_decides_nothing(bench, command, exit_code) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")

    failed = bench.run("resolve", "r", "--edit", EDITOR=command)

    assert (failed.returncode, failed.stdout) == (exit_code, "")
    assert [one["run"] for one in json_lines(bench.run("inbox", "--json").stdout)] == ["r"]


def test_a_question_is_answered_from_the_shell(bench) -> None:
    waits = bench.run("act", "Do it.", "--model", "ask", "--run", "r")
    assert "--answer TEXT (or --reject): ask Which one?" in waits.stderr

    done = bench.run("resolve", "r", "--answer", "left", "--json")

    assert (done.returncode, loop_status(done.stdout)) == (0, 200)
    [asked] = [m["message_updated"]["entry"] for m in json_lines(done.stdout) if _is_answered(m)][-1:]
    assert asked["body"] == "Which one?\nleft"


def _is_answered(message: dict) -> bool:
    entry = message.get("message_updated", {}).get("entry", {})
    return "/ask_user/" in entry.get("path", "") and entry.get("state") == "STATE_RESOLVED"


@pytest.mark.parametrize(
    "options",
    [
        ("--reject", "--edit"),
        ("--edit", "--answer", "x"),
        ("--content-file", "a", "--answer", "x"),
        ("--edit", "--reason", "x"),
        ("--content-file", "/no/such/file"),
        (),
    ],
)
def test_options_that_exclude_each_other_are_a_usage_error(bench, options) -> None:
    assert bench.run("resolve", "r", *options).returncode == 2


def test_who_comes_too_late_is_told_who_was_quicker(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")
    bench.run("resolve", "r", PATH, "--accept")

    late = bench.run("resolve", "r", PATH, "--reject")

    assert (late.returncode, late.stdout) == (2, "")
    assert "was accepted by operator at " in late.stderr


def test_a_person_answers_at_the_terminal_by_number(bench) -> None:
    with terminal(bench, "act", "Do it.", "--model", "ask") as person:
        person.expect_text(r"1\. left(.|\s)*2\. right(.|\s)*your answer")
        assert "question: Which one?" in person.screen()
        person.type("2\n")
        assert person.end() == 0
        assert person.screen().count("Which one?") == 2
    assert "All is done." in person.seen


def test_a_proposal_that_nobody_decides_in_time_is_shown_as_expired(alone) -> None:
    alone.environment["TURNWRIGHT_PROPOSAL_EXPIRE_S"] = "1"
    with terminal(alone, "act", "Edit it.", "--model", "m") as person:
        person.expect_text(QUESTION)
        person.expect_text(r"499 expired")
        assert person.end() == 4
    assert "Nobody decided on the proposal in time." in person.seen
    assert (alone.project / "a.txt").read_text() == "old\n"
