"""act, ask and resolve, through a stack that serves and through embedded ones, as a shell sees them. Rows RU013, RU249, RU250; architecture 15."""

from __future__ import annotations

import shutil
import signal
import subprocess

import pytest

from e2e.cli_process import WAIT_S, Bench, json_lines, loop_status, run_alias

EDIT = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>\n<update status="102">Edited.</update>'
DONE = '<update status="200">All is done.</update>'


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    return filled(Bench(tmp_path, stack=stack))


@pytest.fixture
def alone(tmp_path) -> Bench:
    """Each of its commands embeds a stack."""
    return filled(Bench(tmp_path))


def filled(made: Bench) -> Bench:
    (made.project / "a.txt").write_text("old\n")
    made.script("m", EDIT, DONE, DONE, DONE)
    return made


def test_yolo_with_json_prints_messages_only_and_the_status_last(alone) -> None:
    done = alone.run("act", "Edit it.", "--model", "m", "--yolo", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    messages = json_lines(done.stdout)
    assert loop_status(done.stdout) == 200
    loop = messages[-1]["run_state"]["loop"]
    assert (loop["summary"], loop["settings"]["no_interaction"]) == ("All is done.", True)
    assert {"turn_started", "stream_delta", "message_added", "turn_finished"} <= {key for m in messages for key in m}
    assert (alone.project / "a.txt").read_text() == "new\n"
    assert not (alone.home / "run" / "stack.json").exists()


def test_a_run_with_a_place_of_its_own_tells_its_branch(bench) -> None:
    failed = bench.run("act", "Edit it.", "--model", "m", "--run", "early", "--place", "worktree", "--yolo")
    assert "not the top of a git repository" in failed.stdout
    assert "for --place the top of a git repository with a commit" in failed.stderr
    assert "branch" not in failed.stdout
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "Begin"]):
        named = ["git", "-c", "user.name=A", "-c", "user.email=a@localhost", *words]
        subprocess.run(named, cwd=bench.project, check=True)

    done = bench.run("act", "Edit it.", "--model", "m", "--run", "apart", "--place", "worktree", "--yolo")

    listed = ["git", "for-each-ref", "--format=%(refname:short)", "refs/heads/turnwright"]
    branch = subprocess.run(listed, cwd=bench.project, capture_output=True, text=True, check=True).stdout.strip()
    assert branch.startswith("turnwright/apart-")
    assert done.stdout.endswith(f"\n  changed a.txt (+1 -1)\non branch {branch}\n")
    assert f", branch {branch}\n" in bench.run("runs", "show", "apart").stdout


def test_that_a_directory_is_a_copy_is_said_once(bench, tmp_path) -> None:
    assert "a copy of" not in bench.run("project").stderr
    (tmp_path / "copied").mkdir()
    copy = Bench(tmp_path / "copied", stack=bench.stack)
    shutil.copytree(bench.project, copy.project, dirs_exist_ok=True)
    said = [copy.run("project").stderr for _ in range(2)]
    assert f"{copy.project} is a copy of {bench.project}" in said[0]
    assert "a copy of" not in said[1]


def test_a_pipe_gets_plain_lines_with_each_command_once(bench) -> None:
    done = bench.run("act", "Edit it.", "--model", "m", "--yolo")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("✓ set a.txt 200") == 1
    assert "Done (200 update)" in done.stdout
    assert "All is done." in done.stdout
    assert not [c for c in done.stdout if ord(c) < 32 and c != "\n"]


def test_the_prompt_may_come_from_standard_input(alone) -> None:
    done = alone.run("ask", "-", "--model", "m2", "--json", stdin="What is it?\n", TURNWRIGHT_MODEL_m2="scripted/m")

    assert loop_status(done.stdout) == 200
    assert json_lines(done.stdout)[-1]["run_state"]["loop"]["prompt"] == "What is it?\n"
    assert (alone.project / "a.txt").read_text() == "old\n"


@pytest.mark.parametrize(("status", "exit_code"), [("204", 0), ("422", 3)])
def test_the_exit_code_follows_the_loop(bench, status, exit_code) -> None:
    bench.script("end", f'<update status="{status}">Said.</update>')

    done = bench.run("act", "Do it.", "--model", "end", "--json")

    assert (done.returncode, loop_status(done.stdout)) == (exit_code, int(status))


def test_a_model_that_fails_exits_with_5_and_says_why(bench) -> None:
    bench.script("broken", "=== error class=auth detail=key_refused ===")

    done = bench.run("act", "Do it.", "--model", "broken")

    assert done.returncode == 5
    assert "(500 vendor_auth)" in done.stdout
    assert "turnwright doctor" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_giving_up_exits_with_4(bench) -> None:
    bench.script("lost", *(['<get path="none.txt"/>'] * 8))

    done = bench.run("act", "Do it.", "--model", "lost", "--json")

    assert (done.returncode, loop_status(done.stdout)) == (4, 499)


@pytest.mark.parametrize(("arguments", "named"), [([], "Name a model"), (["--model", "mm"], "'mm'")])
def test_a_missing_or_unknown_model_lists_what_there_is(alone, arguments, named) -> None:
    done = alone.run("act", "Do it.", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert "Available: m" in done.stderr
    assert "turnwright models add <alias> <vendor>/<model>" in done.stderr


def test_a_run_that_exists_keeps_its_model(bench) -> None:
    first = bench.run("act", "One.", "--model", "m", "--run", "mine", "--yolo", "--json")
    second = bench.run("act", "Two.", "--run", "mine", "--yolo", "--json")

    # What the script edits is edited already, so that its second loop ends with a change that failed (C67).
    assert (first.returncode, second.returncode) == (0, 3)
    assert json_lines(second.stdout)[-1]["run_state"]["loop"]["sequence"] == 2


def test_without_a_terminal_a_proposal_waits_and_a_later_process_accepts_it(alone) -> None:
    # RU013, RU250: the run is durable at 202, and an acceptance goes on with the loop.
    waits = alone.run("act", "Edit it.", "--model", "m", "--run", "r", "--json")
    assert (waits.returncode, loop_status(waits.stdout)) == (6, 202)
    assert "turnwright resolve r log://turn_1/set/" in waits.stderr
    assert (alone.project / "a.txt").read_text() == "old\n"
    shown = alone.run("runs", "show", "r")
    assert "change a.txt" in shown.stdout
    assert "+new" in shown.stdout

    goes_on = alone.run("resolve", "r", "--accept", "--json")

    assert (goes_on.returncode, loop_status(goes_on.stdout)) == (0, 200)
    assert (alone.project / "a.txt").read_text() == "new\n"


def test_a_path_may_be_named_and_a_second_decision_is_refused(bench) -> None:
    waits = bench.run("act", "Edit it.", "--model", "m", "--run", "r", "--json")
    pending = [m["proposal_pending"]["proposal"]["path"] for m in json_lines(waits.stdout) if "proposal_pending" in m]

    assert bench.run("resolve", "r", pending[0], "--accept").returncode == 0
    again = bench.run("resolve", "r", pending[0], "--accept")

    assert (again.returncode, again.stdout) == (2, "")


def test_a_rejection_ends_the_loop_with_4(bench) -> None:
    # RU249
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")

    done = bench.run("resolve", "r", "--reject", "--json")

    assert (done.returncode, loop_status(done.stdout)) == (4, 499)
    last = json_lines(done.stdout)[-1]["run_state"]
    assert (last["run"]["status"], last["loop"]["reason"]) == (200, "rejected")
    assert (bench.project / "a.txt").read_text() == "old\n"
    assert bench.run("resolve", "r", "--accept").returncode == 2


def test_a_rejection_with_a_reason_is_read_by_the_model(bench) -> None:
    bench.run("act", "Edit it.", "--model", "m", "--run", "r")

    done = bench.run("resolve", "r", "--reject", "--reason", "Not this file.", "--json")

    assert (done.returncode, loop_status(done.stdout)) == (0, 200)
    assert (bench.project / "a.txt").read_text() == "old\n"


def test_resolving_where_nothing_waits_is_a_usage_error(bench) -> None:
    bench.run("act", "Do.", "--model", "m", "--run", "r", "--yolo")

    done = bench.run("resolve", "r", "--accept")

    assert (done.returncode, done.stdout) == (2, "")
    assert "Nothing in run r waits" in done.stderr
    assert bench.run("resolve", "nobody", "--accept").returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_run_and_exits_with_4(alone, number) -> None:
    alone.script("slow", "=== reply after_ms=50000 ===\nToo late.")

    with alone.running("act", "Do it.", "--model", "slow", "--run", "r", "--json") as process:
        process.wait_for("turn_started")
        process.signal(number)
        assert process.end() == 4

    assert loop_status("\n".join(process.lines["out"])) == 499
    assert "stopped" in alone.run("runs").stdout


def test_ctrl_c_takes_a_task_that_waits_out_of_the_queue(alone) -> None:
    alone.script("slow", "=== reply after_ms=50000 ===\nToo late.")

    with alone.running("act", "Do it.", "--model", "slow", "--run", "r") as first:
        first.wait_for("turn 1")
        with alone.running("act", "Do more.", "--model", "slow", "--run", "r") as second:
            second.wait_for("run r in project, queued behind another task")
            second.signal(signal.SIGINT)
            assert second.end() == 4
        assert [run["status"] for run in json_lines(alone.run("runs", "--json").stdout)] == [102]
        first.signal(signal.SIGINT)
        assert first.end() == 4


def test_a_second_ctrl_c_leaves_at_once(alone) -> None:
    alone.script("slow", "=== reply after_ms=50000 ===\nToo late.")

    with alone.running("act", "Do it.", "--model", "slow") as process:
        process.wait_for("turn 1")
        process.signal(signal.SIGINT)
        process.signal(signal.SIGINT)
        code = process.end()

    # The first may have been done before the second came.
    assert code in (130, 4)


def test_when_the_reader_goes_away_the_work_is_done_all_the_same(alone) -> None:
    process = subprocess.Popen(
        alone.command("act", "Edit it.", "--model", "m", "--yolo", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=alone.project,
        env=alone.env(),
    )
    process.stdout.readline()
    process.stdout.close()
    code = process.wait(WAIT_S)
    said = process.stderr.read()
    process.stderr.close()

    assert (code, said) == (0, "")
    assert (alone.project / "a.txt").read_text() == "new\n"


def test_escape_sequences_of_a_model_reach_no_terminal(bench) -> None:
    bench.script("evil", 'Look:\x1b]52;c;aGk=\x07 \x1b[2J<update status="200">fine\x1b[31m</update>')

    done = bench.run("act", "Do it.", "--model", "evil")

    assert done.returncode == 0
    assert not [c for c in done.stdout if ord(c) < 32 and c != "\n"]


def test_each_of_many_commands_runs(alone) -> None:
    # A command is a child of a process with gRPC in it: none may die before it begins.
    commands = "".join(f"<sh>test {number} = {number}</sh>" for number in range(40))
    alone.script("many", f'{commands}<update status="102">Running.</update>', DONE)

    done = alone.run("act", "Run them.", "--model", "many", "--yolo")

    assert done.returncode == 0
    assert (done.stdout.count("✓ sh"), done.stdout.count("✗ sh")) == (40, 0)


def test_runs_are_listed_and_shown(bench) -> None:
    alias = run_alias(bench.run("act", "Edit it.", "--model", "m", "--yolo", "--json").stdout)

    listed = bench.run("runs")
    shown = bench.run("runs", "show", alias)
    unknown = bench.run("runs", "show", "nobody")

    assert alias in listed.stdout
    assert "Edit it." in listed.stdout
    assert "1. Edit it.: 200 done" in shown.stdout
    assert unknown.returncode == 2
    assert json_lines(bench.run("runs", "--json").stdout)[0]["run"] == alias


def test_doctor_tells_what_is_set_without_secrets(alone) -> None:
    secrets = {
        "TURNWRIGHT_TOKEN": "tok-hidden",
        "OPENAI_API_KEY": "sk-hidden",
        "TURNWRIGHT_OPENAI_BASE_URL": "http://me:pw-hidden@127.0.0.1:1/v1",
    }
    done = alone.run("doctor", TURNWRIGHT_STRIKES_MAX="5", **secrets)

    assert done.returncode == 0, done.stderr
    assert "TURNWRIGHT_STRIKES_MAX=5" in done.stdout
    assert "TURNWRIGHT_OPENAI_API_KEY=(set)" in done.stdout
    assert "m: usable" in done.stdout
    assert "hidden" not in done.stdout + done.stderr + (alone.home / "turnwright.log").read_text()


def test_doctor_says_what_is_missing(alone) -> None:
    alone.environment["TURNWRIGHT_MODEL_big"] = "openai/gpt"

    done = alone.run("doctor")

    assert done.returncode == 0
    assert "OPENAI_BASE_URL" in done.stdout.split("vendors:")[1]
    assert "big: usable" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "anthropic/any"], "ANTHROPIC_API_KEY"),
        (["--model", "hosted"], "OPENROUTER_API_KEY"),
        (["--model", "m", "--image", "gone.png"], "There is no image gone.png"),
    ],
)
def test_what_cannot_work_makes_no_run(alone, arguments, said) -> None:
    alone.environment["TURNWRIGHT_MODEL_hosted"] = "openrouter/any"
    done = alone.run("act", "Do it.", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(alone.run("runs").stdout.splitlines()) == 1
