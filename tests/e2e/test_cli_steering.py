"""fork, rename, inject, config, budgets and the live list of runs, as a shell sees them. Architecture 15."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cli_process import WAIT_S, Bench, json_lines, loop_status

EDIT = '<set path="a.txt">new</set>\n<update status="102">Edited.</update>'
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">All is done.</update>'


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    made = Bench(tmp_path, stack=stack)
    (made.project / "a.txt").write_text("old\n")
    made.script("m", *[DONE] * 4)
    return made


def ok(done) -> str:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def one(done) -> dict:
    (message,) = json_lines(ok(done))
    return message


def test_a_run_is_forked_renamed_and_removed(bench) -> None:
    ok(bench.run("act", "Do it.", "--model", "m", "--run", "r", "--yolo"))

    assert ok(bench.run("fork", "r", "--to", "side")) == "side: 100 idle; forked from r after turn 1\n"
    assert ok(bench.run("rename", "r", "main")) == "main: 200 done; it was r\n"
    forked = one(bench.run("runs", "show", "side", "--json"))["run"]["forked_from"]
    assert forked == {"run": "main", "turn": 1}
    assert ok(bench.run("runs", "remove", "side")) == "side: 100 idle; removed\n"
    listed = json_lines(ok(bench.run("runs", "--json")))
    assert [run["run"] for run in listed] == ["main"]


def test_an_abort_is_reported_when_the_run_has_stopped(bench) -> None:
    bench.script("edit", EDIT, DONE)
    assert bench.run("act", "Do it.", "--model", "edit", "--run", "r").returncode == 6

    assert ok(bench.run("runs", "abort", "r")) == "r: 499 stopped (aborted)\n"
    assert ok(bench.run("runs", "abort", "r")) == "r: 499 stopped (aborted)\n"
    assert one(bench.run("runs", "abort", "r", "--json"))["loop"]["status"] == 499


def test_a_task_is_given_to_a_fork(bench) -> None:
    ok(bench.run("act", "Do it.", "--model", "m", "--run", "r", "--yolo"))

    done = bench.run("act", "Try.", "--run", "r", "--fork", "--yolo", "--json")

    assert loop_status(done.stdout) == 200
    run = json_lines(done.stdout)[-1]["run_state"]["run"]
    assert (run["forked_from"]["run"], run["turn"]) == ("r", 2)


def test_schedules_are_added_listed_and_removed(bench) -> None:
    # RE07
    ok(bench.run("act", "Do it.", "--model", "m", "--run", "r", "--yolo"))

    added = ok(bench.run("schedules", "add", "r", "nightly", "Run\tthe tests.", "--cron", "0 3 * * 1-5"))
    assert re.fullmatch(r"nightly: 0 3 \* \* 1-5, next \d{4}-\d\d-\d\d 03:00:00 UTC\n", added)
    beat = one(bench.run("schedules", "add", "r", "beat", "--every", "2h", "--json"))
    assert beat["every"] == "7200s"
    own = ("--mode", "ask", "-m", "m", "--yolo", "--without", "web", "--max-turns", "3")
    made = one(bench.run("schedules", "add", "r", "own", "Look.", "--every", "1d", *own, "--json"))
    asked = {"mode": "MODE_ASK", "model": "m", "yolo": True, "no_web": True, "budget": {"turns_max": 3}}
    assert {name: made["settings"][name] for name in asked} | {"budget": {"turns_max": 3}} == asked
    header, *rows = ok(bench.run("schedules", "list", "r")).splitlines()
    assert header == "id\twhen\tnext (UTC)\tlast (UTC)\ttimes\twith\tprompt"
    told = [row.split("\t") for row in rows]
    assert [(row[:2], row[3:]) for row in told] == [
        (["beat", "2h"], ["", "0", "", ""]),
        (["nightly", "0 3 * * 1-5"], ["", "0", "", "Run\\tthe tests."]),
        (["own", "1d"], ["", "0", "ask, m, yolo, no web, 3 turns", "Look."]),
    ]
    assert ok(bench.run("schedules", "remove", "r", "beat")) == "beat: removed\n"
    absent = bench.run("schedules", "remove", "r", "beat")
    assert (absent.returncode, absent.stdout) == (2, "")
    assert "beat" in absent.stderr


def test_a_schedule_of_new_runs_is_added_paused_and_its_runs_listed(bench) -> None:
    ok(bench.run("act", "Do it.", "--model", "m", "--run", "r", "--yolo"))

    zone = ("--cron", "0 9 * * *", "--tz", "Asia/Tokyo")
    added = ok(bench.run("schedules", "add", "r", "day", "Look.", *zone, "--new-run"))
    assert re.fullmatch(r"day: 0 9 \* \* \* Asia/Tokyo, next \d{4}-\d\d-\d\d 00:00:00 UTC\n", added)
    assert ok(bench.run("schedules", "pause", "r", "day")) == "day: paused\n"
    _, row = ok(bench.run("schedules", "list", "r")).splitlines()
    assert row.split("\t") == ["day", "0 9 * * * Asia/Tokyo", "paused", "", "0", "new run", "Look."]
    assert ok(bench.run("schedules", "resume", "r", "day")).startswith("day: goes on, next ")
    unknown = bench.run("schedules", "add", "r", "x", "Look.", "--cron", "0 9 * * *", "--tz", "Asia/Tokio")
    assert (unknown.returncode, "did you mean Asia/Tokyo?" in unknown.stderr) == (2, True)
    ok(bench.run("schedules", "add", "r", "day", "Look.", "--every", "1s", "--new-run", "--overlap"))
    began: list[dict] = []
    for _ in range(600):
        if began := [
            json.loads(line) for line in ok(bench.run("schedules", "runs", "r", "day", "--json")).splitlines()
        ]:
            break
    ok(bench.run("schedules", "remove", "r", "day"))
    assert re.fullmatch(r"day-\d{8}T\d{6}Z", began[-1]["run"])
    assert ok(bench.run("runs", "show", began[-1]["run"]))


def test_settings_of_a_run_are_shown_and_changed(bench) -> None:
    ok(bench.run("act", "Do it.", "--model", "m", "--run", "r", "--yolo"))

    changed = ok(bench.run("config", "r", "--temperature", "0.5", "--max-turns", "7", "--max-cost", "0.5", "--yolo"))
    shown = ok(bench.run("config", "r"))
    message = one(bench.run("config", "r", "--json"))

    assert shown == changed
    assert shown.splitlines() == [
        "model          m",
        "temperature    0.5",
        "persona        built in",
        "context limit  model's",
        "budget         7 turns, $0.5",
        "yolo           yes",
        "calls          tags",
        "title          default",
    ]
    assert message["settings"]["budget"] == {"turns_max": 7, "cost_usd_max": 0.5}


def test_the_limits_of_a_task_end_its_loop_with_4(bench) -> None:
    bench.script("busy", GO_ON, GO_ON, DONE)

    done = bench.run("act", "Do it.", "--model", "busy", "--yolo", "--max-turns", "2")

    assert done.returncode == 4
    assert "the loop has taken 2 of 2 turns (499 budget_exhausted)" in done.stdout
    assert "turnwright config RUN" in done.stderr
    (run,) = json_lines(ok(bench.run("runs", "--json")))
    assert "\nspent 2 turns, " in ok(bench.run("runs", "show", run["run"]))


def test_a_task_does_without_what_it_is_told_to(bench) -> None:
    done = bench.run("act", "Do it.", "--model", "m", "--yolo", "--json", "--without", "repo", "--without", "proposals")

    settings = json_lines(done.stdout)[-1]["run_state"]["loop"]["settings"]
    assert settings == {
        "mode": "MODE_ACT",
        "model": "m",
        "no_repo": True,
        "no_interaction": True,
        "no_proposals": True,
        "yolo": True,
        "assembly": "ASSEMBLY_PACKET",
    }


def test_a_message_reaches_the_model_in_its_next_turn(bench) -> None:
    bench.script("edit", EDIT, DONE)
    assert bench.run("act", "Do it.", "--model", "edit", "--run", "r").returncode == 6

    told = one(bench.run("inject", "r", "-", "--json", stdin="Mind the gap.\n"))
    ok(bench.run("resolve", "r", "--accept"))

    assert (told["path"], told["run"]["status"]) == ("log://turn_0/inject/message", 202)
    assert (bench.project / "a.txt").read_text() == "new\n"


def test_the_runs_of_a_project_are_followed_as_they_change(bench) -> None:
    bench.script("edit", EDIT, DONE)
    with bench.running("runs", "--watch") as plain, bench.running("runs", "--watch", "--json") as exact:
        exact.wait_for('"last": ?true')
        assert bench.run("act", "Do it.", "--model", "edit", "--run", "r").returncode == 6
        plain.wait_for(r"^r: 202 waits, 1 turn, 1 to decide: Do it\.$")
        ok(bench.run("resolve", "r", "--accept"))
        plain.wait_for(r"^r: 200 done, 2 turns: Do it\.$")
        ok(bench.run("rename", "r", "main"))
        plain.wait_for("^r: gone$")
        exact.wait_for('"deleted"')
        for process in (plain, exact):
            process.popen.send_signal(signal.SIGINT)
            assert process.popen.wait(WAIT_S) == 0
        messages = [json.loads(line) for line in exact.lines["out"]]
    assert "hello" in messages[0]
    assert messages[-1]["changed"]["deleted"] == ["r"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["act", "x", "--fork"], "--fork needs --run"),
        (["act", "x", "--without", "hands"], "'hands' is not one of 'repo', 'web', 'interaction', 'proposals'"),
        (["act", "x", "--max-turns", "-1"], "--max-turns"),
        (["inject", "r", " "], "The message is empty"),
        (["config", "r", "--persona-file", "/no/such/file"], "/no/such/file"),
        (["config", "r", "--temperature", "3"], "--temperature"),
    ],
)
def test_a_wrong_call_exits_with_2(bench, arguments, said) -> None:
    done = bench.run(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_what_cannot_be_done_says_what_to_do_next(bench) -> None:
    bench.script("edit", EDIT, DONE)
    assert bench.run("act", "Do it.", "--model", "edit", "--run", "r").returncode == 6

    renamed, forked = bench.run("rename", "r", "main"), bench.run("fork", "none")

    assert (renamed.returncode, forked.returncode) == (2, 2)
    assert "abort it, or wait until it has" in renamed.stderr
    assert "turnwright runs" in forked.stderr


CHANGE = '<set path="a.txt">new\nlines</set><rm path="b.txt"/><set path="sub/c.txt">made\n</set><sh command="touch s"/>'


def test_the_diff_of_a_run_is_exact_in_a_pipe_and_a_turn_is_taken_back(bench) -> None:
    (bench.project / "b.txt").write_text("b\r\n\x1b[31m")
    bench.script("edit", CHANGE + DONE)
    ok(bench.run("act", "Do it.", "--model", "edit", "--run", "long-name", "--yolo"))

    shown = subprocess.run(bench.command("runs", "show", "lon", "--diff"), **as_shell(bench), check=True)
    assert shown.stderr == b"s: changed by a shell command, whose changes are not recorded as a diff\n"
    changed = {one["path"] for one in show_json(bench, "--diff")[0]["record"]["settled"]["files"]}
    assert changed == {"a.txt"}
    packet = ok(bench.run("runs", "show", "long", "--packet", "1"))
    assert packet.startswith("You are an agent")
    assert "Do it." in packet
    assert "No packet of turn 7" in bench.run("runs", "show", "long", "--packet", "7").stderr

    subprocess.run(["git", "apply", "-R", "-"], input=shown.stdout, cwd=bench.project, check=True)
    assert (bench.project / "a.txt").read_text() == "old\n"
    assert (bench.project / "b.txt").read_bytes() == b"b\r\n\x1b[31m"
    assert not (bench.project / "sub/c.txt").exists()
    subprocess.run(["git", "apply", "-"], input=shown.stdout, cwd=bench.project, check=True)

    (bench.project / "sub/c.txt").write_text("mine\n")
    done = bench.run("undo", "long")
    assert done.returncode == 1
    assert "sub/c.txt stays as it is: it is not what the turn made of it any more." in done.stdout
    assert "s stays as it is: a shell command created it." in done.stdout
    assert (bench.project / "b.txt").read_bytes() == b"b\r\n\x1b[31m"
    assert (bench.project / "sub/c.txt").read_text() == "mine\n"
    assert bench.run("undo", "long").returncode == 5


def test_a_run_is_named_by_its_beginning_and_a_mistyped_one_is_answered_with_what_was_meant(bench) -> None:
    for alias in ("fix-login", "fix-logout"):
        ok(bench.run("act", "Do it.", "--model", "m", "--run", alias, "--yolo"))
    assert ok(bench.run("runs", "show", "fix-logi")).startswith("fix-login: ")
    several = bench.run("runs", "show", "fix")
    assert (several.returncode, several.stderr) == (
        2,
        "turnwright: 2 runs begin with fix: fix-logout, fix-login. Write more of one.\n",
    )
    assert "(did you mean fix-login?)" in bench.run("runs", "abort", "fixlogin").stderr

    # A shell completes their names, and those of models.
    bash = 'eval "$(%s completion bash)"; COMP_WORDS=(turnwright %s); COMP_CWORD=%d; _turnwright_completion "%s"; echo ${COMPREPLY[@]}'
    ours = str(Path(sys.executable).with_name("turnwright"))
    for words, expected in (("runs show fix-log", "fix-logout fix-login"), ("act -m m", "m"), ("pla", "plan")):
        script = bash % (ours, words, len(words.split()), ours)
        done = subprocess.run(["bash", "-c", script], **as_shell(bench), check=False)
        assert (done.stdout.decode().split(), done.stderr) == (expected.split(), b"")


def as_shell(bench) -> dict:
    return {"cwd": bench.project, "env": bench.env(), "capture_output": True, "timeout": WAIT_S}


def show_json(bench, *options: str) -> list[dict]:
    return json_lines(ok(bench.run("runs", "show", "lon", *options, "--json")))
