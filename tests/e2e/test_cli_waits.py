"""What hinders a run is said within a few seconds, in a pipe too, with what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from e2e.cli_process import Bench, Process

DONE = '<update status="200">All is done.</update>'
MOUNT = 'mount -t tmpfs -o size=8m tmpfs "$0" && exec "$@"'
"""A small disk, which only the command and what it starts see."""


@pytest.fixture
def disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["unshare", "-rm", "sh", "-c", MOUNT, str(folder), "true"], check=False).returncode:
        pytest.skip("needs a small disk of its own: user namespaces, or root")
    return folder


def test_a_full_disk_is_told_while_the_run_waits_and_the_run_goes_on_once_there_is_room(tmp_path, disk) -> None:
    bench = Bench(tmp_path)
    fill = f"dd if=/dev/zero of={disk}/fill bs=1k 2> /dev/null; true"
    bench.script("m", f'<sh>{fill}</sh><update status="102">Filled.</update>', DONE)
    bench.environment["TURNWRIGHT_HOME"] = f"{disk}/home"
    command = bench.command("act", "Fill it.", "--model", "m", "--yolo")
    act = Process(
        subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", MOUNT, str(disk), *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=bench.project, env=bench.env(),
        )
    )  # fmt: skip
    try:
        act.wait_for(
            rf"^turnwright: The disk is full \({disk}/home\). Free some space; the run continues then.$", "err"
        )
        (Path(f"/proc/{act.popen.pid}/root") / str(disk).lstrip("/") / "fill").unlink()
        act.wait_for("All is done")
        assert act.end() == 0
    finally:
        act.kill()
