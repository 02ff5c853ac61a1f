"""Plugins as installed distributions, in real processes: found, named, refused; and voters tried over stored runs.

Rows RU010, RU041, RU145, RU148, RU308.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.cli_process import PORTS, Bench, loop_status
from turnwright_assembler.sections.plugin_sections import RENDER_VERSION

GO_ON = '<get path="a.txt"/><update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'

HURRY = """
from turnwright_executor.hooks import TURN_VERDICT, Vote


def register(registry):
    registry.filter(TURN_VERDICT, vote, priority=80)


def vote(vote, facts):
    return Vote(False, 422, "hurry") if vote.continue_ and facts.loop_turn >= 2 else vote


def broken(vote, facts):
    raise RuntimeError("no")
"""

TIDE = """
from turnwright_assembler.plugins import Item
from turnwright_executor.plugins import Done, PluginTool


class Tide(PluginTool):
    name = "tide"
    doc = "## <tide/> - tells the tide"

    def prepare(self, command, context):
        return Done("High at noon.")


def bring(registry):
    registry.tool(Tide())
    registry.section("tides", lambda context: [Item("tide://today")], priority=90)
"""

HOOK = {"turnwright.hooks": "register"}


def made_in(root: Path) -> Bench:
    made = Bench(root)
    made.script("m", GO_ON, GO_ON.replace("a.txt", "b.txt"), DONE)
    for name in ("a.txt", "b.txt"):
        (made.project / name).write_text("text\n")
    return made


@pytest.fixture
def bench(tmp_path) -> Bench:
    return made_in(tmp_path)


def install(bench: Bench, name: str, module: str, text: str, groups: dict[str, str] = HOOK) -> None:
    """A distribution with one module and its entry points, in a folder that every process of the bench looks into."""
    site = bench.root / "site"
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (site / f"{module}.py").write_text(text)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = [f"[{group}]\n{name} = {module}:{function}\n" for group, function in groups.items()]
    (about / "entry_points.txt").write_text("".join(points))
    bench.environment["PYTHONPATH"] = str(site)


def act(bench: Bench, run: str, **env: str):
    return bench.run("act", "Do it.", "--model", "m", "--run", run, "--yolo", "--json", **env)


def log_of(home: Path) -> list[dict]:
    return [json.loads(line) for line in (home / "turnwright.log").read_text().splitlines()]


@pytest.mark.slow
def test_an_installed_plugin_takes_part_until_it_is_left_out(bench) -> None:
    kinds = HOOK | {"turnwright.tools": "bring", "turnwright.sections": "bring"}
    install(bench, "hurry", "hurry_plugin", HURRY + TIDE, kinds)
    bench.script("m", "<tide/>" + GO_ON, GO_ON.replace("a.txt", "b.txt"), DONE)
    hurried = act(bench, "a", TURNWRIGHT_LOG_LEVEL="info")
    assert (hurried.returncode, loop_status(hurried.stdout)) == (3, 422)
    assert "High at noon." in hurried.stdout
    assembler, executor = (line for line in log_of(bench.home) if line["event"] == "plugins_loaded")
    assert executor["active"] == {"hurry": ["<tide>", "turn.verdict"]}
    assert assembler["render_version"] == f"{RENDER_VERSION} hurry=1.0"

    assert loop_status(act(bench, "b", TURNWRIGHT_HOOKS="none").stdout) == 200
    assert loop_status(act(bench, "c", TURNWRIGHT_HOOKS="hurry").stdout) == 422
    assert loop_status(act(bench, "d", TURNWRIGHT_HOOKS="hurry_plugin:register").stdout) == 422


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("import no_such_thing\n", "No module named 'no_such_thing'"),
        ("def register(registry):\n    registry.on('turn.begun', print)\n", "there is no hook 'turn.begun'"),
        ("", "has no attribute 'register'"),
    ],
    ids=["import", "hook", "function"],
)
def test_a_service_does_not_start_with_a_plugin_that_cannot_be_loaded(bench, text, word) -> None:
    install(bench, "hurry", "hurry_plugin", text)
    ended = bench.run("serve", *PORTS)
    assert ended.returncode == 2
    assert "TURNWRIGHT_HOOKS: the plugin hurry cannot be loaded: " in ended.stderr
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_plugin_that_is_named_and_not_installed_is_reported(bench) -> None:
    ended = bench.run("serve", *PORTS, TURNWRIGHT_HOOKS="nobody")
    assert ended.returncode == 2
    assert "TURNWRIGHT_HOOKS: there is no plugin 'nobody'" in ended.stderr


def test_a_broken_plugin_that_is_left_out_hinders_nothing(bench) -> None:
    install(bench, "hurry", "hurry_plugin", "import no_such_thing\n")
    with bench.running("serve", *PORTS, TURNWRIGHT_HOOKS="none") as server:
        server.wait_for("^executor serves at ", "err")
        assert server.stop() == 0


# ---- turnwright policy backtest


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Bench:
    """A bench with two runs of three turns each, and a module with voters in the project's directory."""
    bench = made_in(tmp_path_factory.mktemp("done"))
    for run in ("a", "b"):
        assert act(bench, run).returncode == 0
    (bench.project / "voters.py").write_text(HURRY)
    return bench


def policy(bench: Bench, *arguments: str, **env: str):
    return bench.run("policy", "backtest", "--verdicts", *arguments, **env)


def stored(bench: Bench, run: str) -> str:
    return bench.run("runs", "show", run, "--json").stdout


def test_the_rules_alone_decide_as_they_did(done) -> None:
    ended = policy(done, "--all", "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [
        {"verdicts": 6, "runs": 2, "different": 0, "left_out": 0}
    ]


def test_a_voter_is_tried_over_stored_runs_and_these_stay_as_they_are(done) -> None:
    before = stored(done, "a")
    ended = policy(done, "--hook", "voters:vote", "--run", "a", "--json")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    project = lines[0].pop("project")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert lines == [
        {
            "run": "a",
            "loop": 1,
            "turn": 2,
            "was": {"status": 102, "reason": ""},
            "would_be": {"status": 422, "reason": "hurry"},
        },
        {"verdicts": 3, "runs": 1, "different": 1, "left_out": 0},
    ]
    assert stored(done, "a") == before

    ended = policy(done, "--hook", "voters:register", "--run", f"{project}/b")
    assert ended.returncode == 1
    assert ended.stdout == "b turn 2: 102 goes on -> 422 hurry\n1 of 3 verdicts would differ, in 1 runs.\n"


def test_a_voter_that_fails_is_told(done) -> None:
    ended = policy(done, "--hook", "voters:broken", "--run", "a")
    assert ended.returncode == 5
    assert "the voter broken of voters:broken failed, and did not vote: RuntimeError: no" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "--run RUN, or --all"),
        (("--run", "a", "--all"), "--run RUN, or --all"),
        (("--run", "nobody"), "nobody"),
        (("--run", "a", "--hook", "gone:vote"), "--hook: the plugin gone:vote cannot be loaded"),
    ],
    ids=["no run", "both", "unknown run", "unknown voter"],
)
def test_a_wrong_call_is_reported(done, arguments, word) -> None:
    ended = policy(done, *arguments)
    assert ended.returncode == 2
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr


TALKER = """
import sys
import threading

print("loaded")


def register(registry):
    registry.on("turn.completed", tell)
    registry.on("turn.completed", tell_later)
    registry.filter("turn.verdict", vote)


def tell(event):
    print("plain", event.at.run)
    thread = threading.Thread(target=print, args=("in a thread",))
    thread.start()
    thread.join()


async def tell_later(event):
    sys.stdout.write("async, ")
    sys.stdout.writelines(["in two\\n"])


def vote(vote, facts):
    print("a line without an end " * 1000, end="")
    return vote
"""


def test_what_a_plugin_prints_is_in_the_log_and_not_between_the_lines_of_the_answer(bench) -> None:
    (bench.root / "talker.py").write_text(TALKER)
    bench.script("m", DONE)
    done = bench.run("act", "Do it.", "--model", "m", PYTHONPATH=str(bench.root), TURNWRIGHT_HOOKS="talker:register")
    assert done.returncode == 0, done.stderr
    silent = bench.run("act", "Do it.", "--model", "m", TURNWRIGHT_HOOKS="none")
    assert "plain" not in done.stdout + done.stderr
    assert len(done.stdout) == len(silent.stdout)
    logs = "".join(file.read_text() for file in bench.home.rglob("*.log"))
    printed = [line["text"] for line in map(json.loads, logs.splitlines()) if line["event"] == "line_printed"]
    assert {"loaded", "in a thread", "async, in two"} <= set(printed)
    assert any(line.startswith("plain ") for line in printed)
    assert max(map(len, printed)) > 8192
