"""Runs written as documents. Row RT01."""

from __future__ import annotations

import json

import pytest

from e2e.cli_process import Bench


@pytest.fixture
def bench(tmp_path, stack) -> Bench:
    made = Bench(tmp_path, stack=stack)
    (made.project / "a.txt").write_text("old\n")
    made.script("m", '<get path="a.txt"/><update status="102">Reading.</update>', '<update status="200">Old.</update>')
    made.run("act", "What is in it?", "--model", "m", "--run", "r")
    return made


def test_a_run_is_written_into_a_file_that_is_whole_or_not_there(bench, tmp_path) -> None:
    file = tmp_path / "r.json"
    said = bench.run("runs", "export", "r", "-o", str(file))
    document = json.loads(file.read_bytes())
    assert f"r: written to {file}" in said.stdout
    assert (document["schema_version"], document["run"]["run"], document["complete"]) == (1, "r", True)
    assert [one["number"] for one in document["turns"]] == [2, 1]
    assert file.stat().st_mode & 0o777 == 0o600
    # A folder cannot be replaced: that shows once all is written.
    (tmp_path / "folder").mkdir()
    refused = bench.run("runs", "export", "r", "-o", str(tmp_path / "folder"))
    assert (refused.returncode, "cannot be written" in refused.stderr) == (2, True)
    assert not [one for one in tmp_path.iterdir() if one.name.endswith(".part")]


def test_a_run_is_written_to_standard_output(bench) -> None:
    whole = json.loads(bench.run("runs", "export", "r", "-o", "-").stdout)
    without = json.loads(bench.run("runs", "export", "r", "-o", "-", "--without-files").stdout)
    assert {one["entry"]["path"] for one in whole["entries"]} - {
        one["entry"]["path"] for one in without["entries"]
    } == {"a.txt"}


def test_a_document_becomes_a_run_that_says_what_was_left_out(bench, tmp_path) -> None:
    file = tmp_path / "r.json"
    bench.run("runs", "export", "r", "-o", str(file))
    document = json.loads(file.read_bytes())
    document["entries"].append({"entry": {"path": "known://\u0000", "revision": "1"}})
    file.write_text(json.dumps(document))
    made = bench.run("runs", "import", str(file))
    assert made.stdout == "r-2: 2 turns, 1 left out\n"
    assert f"left out entries[{len(document['entries']) - 1}]" in made.stderr
    again = bench.run("runs", "import", "-", "--run", "again", "--json", stdin=file.read_text())
    assert json.loads(again.stdout)["run"]["run"] == "again"
    assert bench.run("replay", "again").returncode == 0
    refused = bench.run("runs", "import", "-", stdin="{}")
    assert (refused.returncode, "not a document of a run" in refused.stderr) == (2, True)
