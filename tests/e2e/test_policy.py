"""Approval rules at the command line: set, listed, tried, and held against what runs have done."""

from __future__ import annotations

import json

import pytest

from e2e.cli_process import Bench

DONE = '<update status="200">Done.</update>'


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    """A bench with a run that ran a command, was refused another one, and changed a file."""
    made = Bench(tmp_path_factory.mktemp("rules"))
    made.script("m", f'<sh>git --version</sh><set path="a.txt">a\n</set>{DONE}')
    made.script("n", f"<sh>rm -rf nowhere</sh>{DONE}")
    acted = made.run("act", "Do it.", "--run", "a", "--model", "m", "--yolo")
    assert acted.returncode == 0, acted.stderr
    made.run("act", "And then.", "--run", "a", "--model", "n")
    refused = made.run("resolve", "a", "--reject")
    assert refused.returncode in (0, 4), refused.stderr
    return made


def policy(bench: Bench, *arguments: str):
    ended = bench.run("policy", *arguments)
    assert "Traceback" not in ended.stderr
    return ended


def test_a_rule_is_set_listed_tried_and_removed(bench) -> None:
    assert "There is no rule" in policy(bench, "list").stderr
    made = policy(bench, "set", "allow", "git status *", "--tool", "sh")
    assert (made.returncode, made.stderr) == (0, "")
    number = made.stdout.split()[1]
    denied = policy(bench, "set", "deny", "rm *", "--tool", "sh", "--run", "a", "--json")
    assert json.loads(denied.stdout)["target"] == "rm *"
    tried = [
        policy(bench, "test", *arguments).stdout
        for arguments in (
            ["git status -s"],
            ["git push"],
            ["rm x", "--run", "a"],
            ["rm x"],
            ["src/a.py", "--tool", "set"],
        )
    ]
    assert tried == [
        f"allow: rule {number} of the project (allow sh: git status *)\n",
        "ask: no rule matches\n",
        f"deny: rule {int(number) + 1} of the run (deny sh: rm *)\n",
        "ask: no rule matches\n",
        "ask: no rule matches\n",
    ]
    listed = [line.split("\t") for line in policy(bench, "list", "--run", "a").stdout.splitlines()]
    assert [row[:5] for row in listed[1:]] == [
        [number, "project", "allow", "sh", "git status *"],
        [str(int(number) + 1), "run", "deny", "sh", "rm *"],
    ]
    assert policy(bench, "remove", number).returncode == 0
    assert policy(bench, "remove", number).returncode == 2
    assert len(policy(bench, "list").stdout.splitlines()) == 1


def test_rules_of_a_file_are_held_against_what_runs_have_done(bench) -> None:
    file = bench.project / "rules.toml"
    file.write_text(
        '[[rule]]\nverdict = "deny"\ntool = "sh"\ntarget = "git *"\n'
        '[[rule]]\nverdict = "allow"\ntool = "sh"\ntarget = "rm *"\n'
        '[[rule]]\nverdict = "allow"\ntool = "set"\ntarget = "*.txt"\n'
    )
    ended = policy(bench, "backtest", "--rules", str(file), "--all")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.splitlines() == [
        "sh git --version: not asked -> deny, a rule of the file (deny sh: git *)",
        "sh rm -rf nowhere: rejected by operator -> allow, a rule of the file (allow sh: rm *)",
        "2 of 3 effects would have been decided otherwise (2 allow, 0 ask, 1 deny).",
    ]
    file.write_text('[[rule]]\nverdict = "ask"\n')
    same = policy(bench, "backtest", "--rules", str(file), "--run", "a", "--json")
    assert (same.returncode, json.loads(same.stdout)) == (
        0,
        {"effects": 3, "different": 0, "allow": 0, "ask": 3, "deny": 0},
    )


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["set", "allow", "git > x", "--tool", "sh"], "rule.target cannot be used"),
        (["set", "maybe", "git"], "maybe"),
        (["backtest", "--rules", "nowhere.toml", "--all"], "--rules: nowhere.toml cannot be read"),
        (["backtest", "--rules", "x.toml", "--hook", "a:b", "--all"], "say one of them"),
        (["backtest"], "--run RUN, or --all"),
    ],
)
def test_a_wrong_call_is_told(bench, arguments, word) -> None:
    ended = policy(bench, *arguments)
    assert ended.returncode == 2
    assert word in ended.stderr


def test_a_file_of_rules_that_cannot_be_read_stops_the_start(tmp_path) -> None:
    made = Bench(tmp_path)
    (made.home / "rules.toml").write_text("[[rule]")
    ended = made.run("act", "Do it.")
    assert ended.returncode == 2
    assert "TURNWRIGHT_RULES: " in ended.stderr
    assert "Traceback" not in ended.stderr
