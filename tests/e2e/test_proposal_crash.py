"""An executor is killed between the acceptance of a proposal and its effect: the next one completes it. Architecture 11."""

from __future__ import annotations

import asyncio
import signal

import pytest

from e2e.cli_process import PORTS, Bench
from e2e.test_crash import shown, wait_until
from turnwright_cli.discovery import read_record
from turnwright_client import Client

EDIT = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>\n<update status="200">Edited.</update>'
DONE = '<update status="200">All is done.</update>'
PATH = "log://turn_1/set/a.txt"

SLOW = """
import pathlib, time
from turnwright_executor.hooks import PROPOSAL_CONTENT


def register(registry):
    registry.filter(PROPOSAL_CONTENT, slow)


def slow(content, file):
    pathlib.Path("asked").touch()
    time.sleep(100)
    return content
"""


@pytest.fixture
def bench(tmp_path) -> Bench:
    made = Bench(tmp_path)
    (made.project / "a.txt").write_text("old\n")
    made.script("m", EDIT, DONE)
    (made.root / "plugins").mkdir()
    (made.root / "plugins" / "slow.py").write_text(SLOW)
    return made


@pytest.mark.parametrize(
    ("meanwhile", "status", "left"),
    [("old\n", 200, "new\n"), ("new\n", 200, "new\n"), ("theirs\n", 409, "theirs\n")],
    ids=["untouched", "as it shall be", "changed by somebody"],
)
def test_an_accepted_effect_is_completed_by_the_next_executor(bench, meanwhile, status, left) -> None:
    plugged = {
        "PYTHONPATH": str(bench.root / "plugins"),
        "TURNWRIGHT_HOOKS": "slow:register",
        "TURNWRIGHT_HOOK_DEADLINE_S": "90",
        # The run is free for the next one when this lease has passed.
        "TURNWRIGHT_LEASE_S": "1",
    }
    with bench.running("serve", *PORTS, **plugged) as served:
        served.wait_for("executor", "err")
        assert bench.run("act", "Edit it.", "--model", "m", "--run", "r").returncode == 6
        with bench.running("resolve", "r", "--accept") as resolving:
            wait_until((bench.project / "asked").exists, "the filter")
            served.popen.send_signal(signal.SIGKILL)
            served.end()
            resolving.kill()
    assert (bench.project / "a.txt").read_text() == "old\n"
    (bench.project / "a.txt").write_text(meanwhile)

    with bench.running("serve", *PORTS) as served:
        served.wait_for("executor", "err")
        wait_until(lambda: shown(bench, "r")["run"]["status"] == 200, "the end of the run")
        assert bench.run("inbox", "--json").stdout == ""
        assert asyncio.run(status_of(bench)) == status

    assert (bench.project / "a.txt").read_text() == left


async def status_of(bench: Bench) -> int:
    """The status of the command's record."""
    async with Client.connect(read_record(bench.home).executor, (bench.home / "token").read_text().strip()) as client:
        project = (await client.init_project(str(bench.project))).name
        return (await client.get_entry(project, "r", PATH)).status
