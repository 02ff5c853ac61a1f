"""Commands that only read: without a running stack they start the least that answers them, and write nothing."""

from __future__ import annotations

import fcntl
import hashlib
import signal

from e2e.cli_process import Bench, run_alias
from turnwright_cli.exit_codes import USAGE

DONE = '<update status="200">All is done.</update>'
SLOW = "=== reply chunk_chars=1 delay_ms=1000 ===\n" + "Slowly. " * 100


def contents(bench: Bench) -> dict[str, str]:
    """All files of the home but the log, which only a failure grows."""
    return {
        str(file.relative_to(bench.home)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in bench.home.rglob("*")
        if file.is_file() and file.name not in ("turnwright.log", "turnwright.db-shm", "turnwright.db-wal")
    }


def test_they_write_nothing_and_register_no_project(tmp_path) -> None:
    bench, elsewhere = Bench(tmp_path), Bench(tmp_path / "other", stack=tmp_path)
    bench.script("m", DONE)
    done = bench.run("act", "go", "-m", "m", "--json")
    assert done.returncode == 0, done.stderr
    run = run_alias(done.stdout)
    before = contents(bench)
    for arguments, expected in (
        (("runs",), run),
        (("runs", "show", run, "--turns"), "All is done."),
        (("runs", "show", run, "--packet", "1"), "go"),
        (("explain", run), "prompt"),
        (("replay", run), "1 of 1 packets are the same"),
        (("plan", "show", run), "plan"),
        (("schedules", "list", run), "next (UTC)"),
        (("config", run), "temperature"),
        (("inbox",), "wants to"),
        (("models",), "scripted/m"),
    ):
        told = bench.run(*arguments)
        assert (told.returncode, expected in told.stdout) == (0, True), (arguments, told.stdout, told.stderr)
    elsewhere.environment = bench.environment
    assert elsewhere.run("runs").stdout.splitlines()[1:] == []
    missing = elsewhere.run("runs", "show", run)
    assert (missing.returncode, "none was started in this directory" in missing.stderr) == (USAGE, True)
    assert contents(bench) == before
    assert list(elsewhere.project.iterdir()) == []

    # Somebody else may have the database: who reads needs no lock.
    with (bench.home / "turnwright.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run in bench.run("runs").stdout


def test_a_run_whose_process_was_killed_is_shown_as_interrupted(tmp_path) -> None:
    bench = Bench(tmp_path)
    bench.script("m", SLOW)
    with bench.running("act", "go", "-m", "m", "--json") as process:
        process.wait_for("stream_delta")
        process.signal(signal.SIGKILL)
        process.end()
    assert "102 interrupted" in bench.run("runs").stdout
    assert "102 interrupted" in bench.run("runs").stdout
