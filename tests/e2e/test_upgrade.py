"""What the release before has stored goes on with this one: its store is migrated, its runs, proposals and settings are there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cli_process import PORTS, Bench, Process, loop_status
from release_before import Release, installed

EDIT = '<set path="a.txt">new</set><update status="102">Edited.</update>'
NEXT = '<set path="b.txt">more</set><update status="102">Edited.</update>'
DONE = '<update status="200">All is done.</update>'
HOLDS_S = 30
LISTEN = PORTS[:-2]
"""Without that of HTTP, which not every release has; a setting that it does not know it leaves alone."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


class Before(Bench):
    """The same home and project, with the command line of the release before."""

    python = Path()

    def command(self, *arguments: str) -> list[str]:
        return [str(self.python), "-m", "turnwright_cli", *arguments]


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Iterator[Release]:
    with installed(tmp_path_factory.mktemp("before")) as found:
        yield found


def kill(process: Process) -> None:
    """As a host that fails."""
    process.popen.kill()
    process.popen.wait(HOLDS_S)


def entries(bench: Bench, run: str) -> dict[str, dict[str, object]]:
    """What a run consists of, as its document says it, by path."""
    file = bench.root / "run.json"
    done = bench.run("runs", "export", run, "--output", str(file))
    assert done.returncode == 0, done.stderr
    return {one["entry"]["path"]: one["entry"] for one in json.loads(file.read_text())["entries"]}


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_what_the_release_before_has_begun_goes_on(release, tmp_path, request, database) -> None:
    old, new = Before(tmp_path), Bench(tmp_path)
    old.python = release.python
    for bench in (old, new):
        bench.script("edits", EDIT, DONE)
        bench.script("more", NEXT, DONE)
        bench.environment["TURNWRIGHT_HTTP_LISTEN"] = "127.0.0.1:0"
        if database == "postgresql":
            bench.environment["TURNWRIGHT_DB"] = request.getfixturevalue("empty_postgres_url")
    with old.running("serve", *LISTEN) as server:
        server.wait_for("^executor serves at ", "err")
        assert old.run("act", "Edit it.", "--model", "edits", "--run", "ended", "--yolo").returncode == 0
        assert (old.project / "a.txt").read_text() == "new"
        (old.project / "a.txt").unlink()
        assert old.run("act", "Edit it.", "--model", "edits", "--run", "waits").returncode == 6
        told = old.run("runs", "--json").stdout
        before = {run: entries(old, run) for run in ("ended", "waits")}
        kill(server)

    with new.running("serve", *LISTEN) as server:
        server.wait_for("^executor serves at ", "err")
        assert {json.loads(line)["run"] for line in told.splitlines()} == {"ended", "waits"}
        assert {json.loads(line)["run"] for line in new.run("runs", "--json").stdout.splitlines()} == {"ended", "waits"}
        assert {run: entries(new, run) for run in before} == before
        # The proposal is decided by this release, and the run goes on to its end.
        assert not (new.project / "a.txt").exists()
        done = new.run("resolve", "waits", "--accept", "--json")
        assert (done.returncode, loop_status(done.stdout)) == (0, 200), done
        assert (new.project / "a.txt").read_text() == "new"
        # A run that has ended takes its next task.
        done = new.run("act", "Edit more.", "--model", "more", "--run", "ended", "--yolo", "--json")
        assert (done.returncode, loop_status(done.stdout)) == (0, 200), done
        assert (new.project / "b.txt").read_text() == "more"
        kept = {path: one for path, one in before["ended"].items() if path.startswith("log://")}
        assert kept
        assert entries(new, "ended").items() >= kept.items()
        assert server.stop() == 0
