"""`explain` and `replay` in a pipe, at a terminal, as JSON; and a plugin that is away."""

from __future__ import annotations

import json

import pytest

from e2e.cli_process import Bench
from e2e.test_cli_terminal import terminal

READ = '<get path="a.txt"/><update status="102">Read.</update>'
DONE = '<update status="200">All is done.</update>'
SECTION = """
from turnwright_assembler.plugins import Item
VERSION = "1.0"
def register(registry):
    registry.section("weather", lambda context: [Item("weather://now", "sunny")], priority=60)
"""


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    return filled(Bench(tmp_path, stack=stack))


@pytest.fixture
def alone(tmp_path) -> Bench:
    """Each of its commands embeds a stack."""
    return filled(Bench(tmp_path))


def filled(made: Bench) -> Bench:
    (made.project / "a.txt").write_text("old\n" * 200)
    made.script("m", READ, DONE)
    return made


def test_a_packet_in_a_pipe_is_sentences_and_a_row_for_each_piece(bench) -> None:
    bench.run("act", "Read it.", "--model", "m", "--run", "r")
    lines = bench.run("explain", "r", COLUMNS="20").stdout.splitlines()
    assert lines[0] == "r: turn 2 of loop 1, packet for m"
    heads, *rows = [line.split("\t") for line in lines if "\t" in line]
    assert heads[:4] == ["tokens", "kind", "section", "path"]
    assert {len(row) for row in rows} == {len(heads)}
    sizes = [int(row[0]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert ["files", "visible", "a.txt"] in [row[1:4] for row in rows]


def test_a_project_has_its_runs_sent_as_transcripts(bench) -> None:
    assert "assembly  default" in bench.run("project").stdout.splitlines()
    assert "assembly  transcript" in bench.run("project", "--assembly", "transcript").stdout.splitlines()
    bench.run("act", "Read it.", "--model", "m", "--run", "r")
    assert bench.run("explain", "r").stdout.splitlines()[0] == "r: turn 2 of loop 1, transcript for m"
    assert json.loads(bench.run("project", "--json").stdout)["assembly"] == "ASSEMBLY_TRANSCRIPT"


def test_json_is_the_exact_explanation_and_the_preview_is_one_too(bench) -> None:
    bench.run("act", "Read it.", "--model", "m", "--run", "r")
    told = json.loads(bench.run("explain", "r", "1", "--json").stdout)
    assert (told["turn"], told["digest"]) == (1, told["stored_digest"])
    assert sum(piece.get("tokens", 0) for piece in told["pieces"]) == told["tokens"]
    preview = json.loads(bench.run("explain", "r", "--next", "--json").stdout)
    assert (preview["turn"], preview["preview"]) == (3, True)
    wrong = bench.run("explain", "r", "9")
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_gets_a_picture_in_colours_unless_it_wants_none(bench, no_color) -> None:
    bench.run("act", "Read it.", "--model", "m", "--run", "r")
    bench.environment["NO_COLOR"] = no_color
    with terminal(bench, "explain", "r") as person:
        assert person.end() == 0
    assert "kinds" in person.seen
    assert ("\x1b[" in person.seen) is not bool(no_color)


def test_a_restored_backup_is_replayed_as_what_it_came_from(bench, tmp_path) -> None:
    bench.run("act", "Read it.", "--model", "m", "--run", "r")
    file, restored = str(tmp_path / "backup"), str(tmp_path / "restored.db")
    assert bench.run("store", "backup", file).returncode == 0
    assert bench.run("store", "restore", file, "--db", restored).returncode == 0
    again = bench.run("replay", "r", TURNWRIGHT_DB=restored)
    assert (again.returncode, again.stdout) == (0, "r: 2 of 2 packets are the same, 0 differ.\n"), again.stderr


def test_a_replay_compares_every_turn_and_names_those_that_differ(alone, tmp_path) -> None:
    (tmp_path / "weather.py").write_text(SECTION)
    with_plugin = {"TURNWRIGHT_SECTIONS": "weather:register", "PYTHONPATH": str(tmp_path)}
    alone.run("act", "Read it.", "--model", "m", "--run", "r", **with_plugin)
    same = alone.run("replay", "r", **with_plugin)
    assert (same.returncode, same.stdout) == (0, "r: 2 of 2 packets are the same, 0 differ.\n")
    away = alone.run("replay", "r")
    first, second, counts = away.stdout.splitlines()
    assert (away.returncode, counts) == (1, "r: 0 of 2 packets are the same, 2 differ.")
    assert first.startswith("turn 1: Assembled again it is another packet")
    assert "weather" in second
    counted = alone.run("replay", "r", "--json").stdout.splitlines()
    assert json.loads(counted[-1])["different"] == 2
