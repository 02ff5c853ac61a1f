"""The plans of a run, as a shell sees them. Architecture 9, 15."""

from __future__ import annotations

import pytest

from e2e.cli_process import Bench, json_lines
from e2e.test_cli_terminal import terminal

DONE = '<update status="200">All is done.</update>'
STEPS = (
    '[{"content": "read", "priority": "high", "status": "completed"},'
    ' {"content": "write", "priority": "medium", "status": "in_progress"}]'
)
HEADS = "plan\tversion\tmode\tpart\tstatus\tpriority\ttext\tevidence"


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    made = Bench(tmp_path, stack=stack)
    made.script("m", *[DONE] * 4)
    ok(made.run("ask", "Look.", "--model", "m", "--run", "r"))
    return made


def ok(done) -> str:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_plan_is_set_added_to_shown_and_removed(bench) -> None:
    (bench.root / "plan.md").write_text("# Do it\n\tC:\\new\n")
    assert ok(bench.run("plan", "set", "r", "--file", str(bench.root / "plan.md"))) == "plan main, version 1\n"
    assert ok(bench.run("plan", "update", "r", "-", stdin="Test it.")) == "plan main, version 1: 1 delta\n"
    assert ok(bench.run("plan", "show", "r")).splitlines() == [
        HEADS,
        "main\t1\t\tmarkdown\t\t\t# Do it\\n\\tC:\\\\new\\n\t",
        "main\t1\t\tdelta\t\t\tTest it.\t",
    ]
    assert ok(bench.run("plan", "set", "r", "Anew.", "--mode", "agent")) == "plan main, version 2\n"
    assert ok(bench.run("plan", "set", "r", "Later.", "--plan-id", "next")) == "plan next, version 1\n"
    rows = ok(bench.run("plan", "show", "r")).splitlines()
    assert rows[1:] == ["main\t2\tagent\tmarkdown\t\t\tAnew.\t", "next\t1\t\tmarkdown\t\t\tLater.\t"]
    assert ok(bench.run("plan", "show", "r", "--plan-id", "next")).splitlines() == [HEADS, rows[2]]
    assert len(ok(bench.run("plan", "show", "r", "--version", "1")).splitlines()) == 3
    removed = ok(bench.run("plan", "rm", "r", "--plan-id", "next"))
    assert removed.startswith("plan next: removed; `turnwright plan show r --plan-id next --version 1`")
    assert ok(bench.run("plan", "show", "r")).splitlines() == [HEADS, rows[1]]
    assert "\nplan main, version 2\n" in ok(bench.run("runs", "show", "r"))


def test_programs_get_the_messages_of_the_contract(bench) -> None:
    (made,) = json_lines(ok(bench.run("plan", "set", "r", "# Do it", "--json")))
    assert (made["plan_id"], made["kind"], made["version"]) == ("main", "PLAN_KIND_MARKDOWN", 1)
    (grown,) = json_lines(ok(bench.run("plan", "update", "r", "more", "--json")))
    assert [delta["text"] for delta in grown["deltas"]] == ["more"]
    assert json_lines(ok(bench.run("plan", "show", "r", "--json"))) == [grown]
    assert json_lines(ok(bench.run("plan", "rm", "r", "--json"))) == [grown]
    assert ok(bench.run("plan", "show", "r", "--json")) == ""


def test_a_terminal_shows_plans_as_they_are_written(bench) -> None:
    ok(bench.run("plan", "set", "r", "# Do it\n- [x] \x1b[31mread"))
    with terminal(bench, "plan", "show", "r") as person:
        assert person.end() == 0
    assert "plan main, version 1" in person.seen
    assert "  - [x] [31mread" in person.seen


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "r"], "one of them"),
        (["set", "r", "text", "--items", "[]"], "one of them"),
        (["set", "r", " "], "The plan is empty"),
        (["set", "r", "x" * 98_305], "The plan is longer than 98304 bytes"),
        (["set", "r", "--file", "/no/such/file"], "/no/such/file"),
        (["set", "r", "--items", "no list"], "items"),
        (["set", "r", "text", "--plan-id", "a b"], "plan_id"),
        (["set", "r", "text", "--plan-id", "a/b"], "plan_id"),
        (["update", "r", "text", "--plan-id", "a/b"], "plan_id"),
        (["set", "r", "\udcff"], "TEXT is not UTF-8 text"),
        (["set", "r", "--items", STEPS.replace("read", "\\ud800")], "items[0].content"),
        (["update", "r"], "--file"),
        (["update", "r", "more", "--file", "x"], "--file"),
        (["update", "r", "more"], "turnwright plan set RUN"),
        (["show", "r", "--plan-id", "none"], "turnwright plan show RUN"),
        (["rm", "r"], "turnwright plan show RUN"),
        (["show", "none"], "`turnwright runs` lists"),
    ],
    ids=lambda value: " ".join(value)[:24] if isinstance(value, list) else "",
)
def test_a_wrong_call_exits_with_2_and_says_what_to_do(bench, arguments, said) -> None:
    done = bench.run("plan", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_run_without_plans_says_how_to_set_one(bench) -> None:
    done = bench.run("plan", "show", "r")
    assert (done.returncode, done.stdout) == (0, HEADS + "\n")
    assert "turnwright plan set r TEXT" in done.stderr


def test_items_are_set_as_json_and_shown_with_how_far_they_have_come(bench) -> None:
    assert ok(bench.run("plan", "set", "r", "--items", "-", stdin=STEPS)) == "plan main, version 1: 1/2 items done\n"
    assert ok(bench.run("plan", "show", "r")).splitlines()[1:] == [
        "main\t1\t\titem\tcompleted\thigh\tread\t",
        "main\t1\t\titem\tin_progress\tmedium\twrite\t",
    ]
    (shown,) = json_lines(ok(bench.run("plan", "show", "r", "--json")))
    assert [(one["content"], one["status"]) for one in shown["items"]] == [
        ("read", "PLAN_STATUS_COMPLETED"),
        ("write", "PLAN_STATUS_IN_PROGRESS"),
    ]
    with terminal(bench, "plan", "show", "r") as person:
        assert person.end() == 0
    assert "[x] read (high)" in person.seen
    assert "[~] write (in progress)" in person.seen
    assert "\nplan main, version 1: 1/2 items done\n" in ok(bench.run("runs", "show", "r"))


def test_a_list_without_items_is_a_plan_too(bench) -> None:
    assert ok(bench.run("plan", "set", "r", "--items", "[]")) == "plan main, version 1: 0/0 items done\n"
    assert ok(bench.run("plan", "show", "r")).splitlines()[1:] == ["main\t1\t\titems\t\t\t\t"]


def test_a_wrong_item_is_named(bench) -> None:
    done = bench.run("plan", "set", "r", "--items", STEPS.replace("in_progress", "half"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "items[1].status" in done.stderr


BOTH = STEPS.replace("in_progress", "completed")


def test_a_task_shows_what_becomes_of_a_plan_while_it_works(bench) -> None:
    """From outside, as the tools of the model do it too: each item that moved, the whole, what was added."""
    bench.script("m", "<sh>while test ! -e go; do sleep 0.05; done</sh>", DONE)
    ok(bench.run("plan", "set", "r", "--items", STEPS))
    act = ("act", "Wait.", "--run", "r", "--yolo")
    with bench.running(*act) as shown:
        shown.wait_for("^turn 2$")
        with bench.running("plan", "set", "r", "--items", BOTH) as setting:
            assert setting.end() == 0
        shown.wait_for(r"^  plan main: \[x\] write$")
        ok(bench.run("plan", "update", "r", "Then test\nit."))
        shown.wait_for(r"^  plan main, added: Then test it\.$")
        ok(bench.run("plan", "set", "r", "Anew."))
        shown.wait_for(r"^  plan main, version 3: 1 line$")
        ok(bench.run("plan", "rm", "r"))
        shown.wait_for(r"^  plan main: removed$")
        (bench.project / "go").touch()
        assert shown.end() == 0
    assert len([line for line in shown.lines["out"] if "plan main" in line]) == 4


def test_a_program_gets_the_events_of_plans(bench) -> None:
    bench.script("m", "<sh>while test ! -e go; do sleep 0.05; done</sh>", DONE)
    with bench.running("act", "Wait.", "--run", "r", "--yolo", "--json") as told:
        told.wait_for('"turn_started"')
        ok(bench.run("plan", "set", "r", "--items", STEPS))
        told.wait_for('"plan_updated"')
        ok(bench.run("plan", "rm", "r"))
        told.wait_for('"plan_removed"')
        (bench.project / "go").touch()
        assert told.end() == 0
    messages = json_lines("\n".join(told.lines["out"]))
    (updated,) = (one["plan_updated"] for one in messages if "plan_updated" in one)
    assert (updated["version"], len(updated["items"])) == (1, 2)
    (removed,) = (one["plan_removed"] for one in messages if "plan_removed" in one)
    assert removed == "main"
