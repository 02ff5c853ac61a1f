"""A session shows the run: what waited, whoever decides on it and whenever, and what is given while it works."""

from __future__ import annotations

import json
import re

import pytest

from e2e.cli_process import Bench, serving
from e2e.terminals import Terminal, terminal
from e2e.test_chat import QUESTION, ready

TRY = 'Let me see.\n<sh>echo seen; exit 3</sh>\n<update status="102">Trying.</update>'
FIRST = '<sh>echo again</sh>\n<update status="102">Once more.</update>'
ANSWERS = ('<update status="200">The first answer.</update>', '<update status="200">The second answer.</update>')


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("stack"), "m", "n") as root:
        yield root


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    return Bench(tmp_path, stack=stack)


def run_of(bench: Bench) -> str:
    return json.loads(bench.run("runs", "--json").stdout.splitlines()[0])["run"]


def told_once(bench: Bench, shown: str) -> None:
    """The commands and the answers of the run are those that stand on the terminal, in their order."""
    run = run_of(bench)
    commands = re.findall(r"^  [✓✗⊘] sh (.*?) \d{3} ", bench.run("runs", "show", run, "--turns").stdout, re.MULTILINE)
    assert re.findall(r"[✓✗⊘] sh (.*?)  ", shown) == commands
    loops = json.loads(bench.run("runs", "show", run, "--json").stdout)["loops"]
    answers = [loop["summary"] for loop in reversed(loops) if loop.get("summary")]
    assert re.findall("|".join(map(re.escape, set(answers))), shown) == answers


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
@pytest.mark.parametrize("how", ["here", "elsewhere", "elsewhere before"])
def test_what_waited_is_shown_once_whoever_decides_on_it(bench, how, leaves) -> None:
    bench.script("m", TRY, FIRST, ANSWERS[0])
    bench.script("n", ANSWERS[1])

    def accept(person: Terminal | None) -> None:
        if how == "here" and person:
            person.type("a")
        else:
            bench.run("resolve", run_of(bench), "--accept")

    def wait(person: Terminal) -> None:
        ready(person)
        person.type("try it\r")
        person.expect_text(QUESTION)
        person.type("\x04")
        person.expect_text("/decide asks again")
        ready(person)

    def go_on(person: Terminal) -> None:
        if how == "elsewhere before":
            accept(None)
            accept(None)
        person.type("/model n\r")
        ready(person)
        person.type("and then?\r")
        if how != "elsewhere before":
            person.expect_text(QUESTION)
            accept(person)
            person.expect_text(f"(?s)│ seen.*{QUESTION}")
            accept(person)
        person.expect_text("The second answer")
        ready(person)
        shown = person.fold()
        assert shown.count("│ seen") == 1
        assert shown.count("│ again") == 1
        told_once(bench, shown)
        assert shown.index("The first answer.") < shown.index("The second answer.")
        person.type("\x04")
        assert person.end() == 0

    with terminal(bench, "-m", "m") as person:
        wait(person)
        if not leaves:
            go_on(person)
        else:
            person.type("\x04")
            assert person.end() == 0
    if leaves:
        with terminal(bench, "-c") as person:
            ready(person)
            go_on(person)


HELD = '<sh>echo held; until [ -e go ]; do sleep 0.05; done</sh>\n<update status="102">Waited.</update>'
DONE = '<update status="200">All is done.</update>'


@pytest.fixture
def held(bench):
    """A session whose first task works until the test lets go, and what lets go."""
    bench.script("m", HELD, DONE)
    with terminal(bench, "-m", "m", "--yolo") as person:
        ready(person)
        person.type("first\r")
        person.expect_text("held")
        yield person, (bench.project / "go").touch
        ready(person)
        person.type("\x04")
        assert person.end() == 0


def test_yolo_that_is_turned_off_is_taken_back_from_the_loop_that_works(bench, held) -> None:
    person, let_go = held
    bench.script("m", HELD, TRY, DONE)
    person.type("/yolo\r")
    person.expect_text("You are asked again")
    assert not (bench.project / "go").exists()
    let_go()
    person.expect_text(QUESTION)
    assert "│ seen" not in person.fold()
    person.type("a")
    person.expect_text("All is done")


def test_yolo_that_is_turned_off_at_rest_is_taken_back_from_the_run(bench) -> None:
    bench.script("m", DONE)
    bench.run("act", "--model", "m", "begin")
    bench.run("config", run_of(bench), "--yolo")
    bench.script("m", TRY, DONE)
    with terminal(bench, "-c") as person:
        ready(person)
        assert "yolo" in person.fold()
        person.type("/yolo\r")
        person.expect_text("You are asked again")
        ready(person)
        person.type("try it\r")
        person.expect_text(QUESTION)
        person.type("a")
        person.expect_text("All is done")
        ready(person)
        person.type("\x04")
        assert person.end() == 0


def prompts_of(bench: Bench) -> list[str]:
    found = json.loads(bench.run("runs", "show", run_of(bench), "--json").stdout)
    return [loop["prompt"] for loop in reversed(found["loops"]) if loop["status"] == 200]


def test_enter_during_a_turn_queues_a_message_which_is_shown_and_can_be_taken_back(bench, held) -> None:
    person, let_go = held
    for number, text in enumerate(("second", "third", "fourth"), 1):
        person.type(f"{text}\r")
        person.expect_text(f"Queued: {text}")
        person.expect_text(f"queued {number}: {text}")
    person.type("/queue\r")
    person.expect_text("(?s)1. second.*2. third.*3. fourth")
    person.type("/queue 4\r")
    person.expect_text("by its number")
    person.type("/queue 2\r")
    person.expect_text("(?s)Taken back: third.*1. second.*2. fourth")
    person.type("/cost\r")
    person.expect_text("After this turn: /cost")
    let_go()
    person.expect_text("(?s)All is done.*> second.*All is done.*> fourth.*All is done.*used 6 turns")
    assert prompts_of(bench) == ["first", "second", "fourth"]
    told_once(bench, person.fold())


def test_the_last_message_of_a_queue_can_be_taken_back(bench, held) -> None:
    person, let_go = held
    person.type("second\r")
    person.expect_text("Queued: second")
    person.type("/queue 1\r")
    person.expect_text("Taken back: second")
    let_go()
    person.expect_text("All is done")
    assert prompts_of(bench) == ["first"]


def test_a_key_stops_the_turn_and_what_is_queued_goes_on(bench, held) -> None:
    person, let_go = held
    person.type("second\r")
    person.expect_text("Queued: second")
    person.type("\x1b")
    person.expect_text("(?s)Stopped.*> second")
    let_go()
    person.expect_text("All is done")
    assert prompts_of(bench) == ["second"]


def test_what_is_said_now_is_read_in_the_next_turn(bench, held) -> None:
    person, let_go = held
    person.type("/now Use tabs.\r")
    person.expect_text("reads it in its next turn: Use tabs")
    let_go()
    person.expect_text("All is done")
    assert prompts_of(bench) == ["first"]
    assert "Use tabs." in bench.run("runs", "show", run_of(bench), "--packet", "2").stdout


def test_what_is_being_typed_is_shown_and_kept_and_makes_a_letter_no_answer(bench) -> None:
    bench.script("m", HELD, TRY, DONE)
    with terminal(bench, "-m", "m") as person:
        ready(person)
        person.type("first\r")
        person.expect_text(QUESTION)
        person.type("a")
        person.expect_text("held")
        person.type("a draft")
        person.expect_text("> a draft")
        (bench.project / "go").touch()
        person.expect_text(QUESTION)
        person.type("a")
        person.expect_text("a")
        assert bench.run("inbox").stdout.count("echo seen") == 1
        person.type("\r")
        person.expect_text("(?s)All is done.*> a draft")
        person.type("\x03")
        ready(person)
        person.type("\x04")
        assert person.end() == 0


def test_a_command_runs_in_the_shell_of_the_person_and_is_shown_to_the_model_on_demand(bench) -> None:
    bench.script("m", DONE)
    with terminal(bench, "-m", "m") as person:
        for typed, shown in (
            ("!echo local-$((1 + 1)); pwd", f"(?s)local-2.*{bench.project.name}"),
            ("!exit 3", "exit code 3"),
            ("!!echo shown-$((1 + 2)); exit 4", "(?s)shown-3.*with your next message.*exit code 4"),
            # Nothing is started after what is shown: some shells lose a Ctrl-C while they start a program.
            ("!echo begun-$((3 + 4)); read it", "begun-7"),
        ):
            ready(person)
            person.type(f"{typed}\r")
            person.expect_text(shown)
        person.type("\x03")
        ready(person)
        person.type("What was it?\r")
        person.expect_text("All is done")
        ready(person)
        packet = bench.run("runs", "show", run_of(bench), "--packet", "1").stdout
        assert "shown-3" in packet
        assert "(exit code 4)" in packet
        assert "local-2" not in packet
        person.type("And?\r")
        person.expect_text("All is done")
        ready(person)
        assert prompts_of(bench)[1] == "And?"
        person.type("/rewind\r")
        person.expect_text(r"(?s)1  What was it\?.*2  And\?.*/rewind 3")
        ready(person)
        person.type("/rewind 1\r")
        person.expect_text(r"(?s)at the end of turn 1.*What was it\?")
        ready(person)
        person.type("\x04")
        assert person.end() == 0
