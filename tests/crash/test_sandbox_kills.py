"""A sandbox host, or the executor that it works for, is killed while a command runs there.

Nothing of the command is left, its record says that nobody knows, and it is not run again. docs/adr/0086.
"""

import asyncio
import os
import subprocess
import sys

import pytest
from turnwright.types.v1 import settings_pb2

from contract.executor.sandboxes import TOKEN, registered
from contract.executor.tool_servers import file_of
from contract.store.harness import SECRET
from crash.stack import ENDURING, REPO, Stack, insisted
from living import is_alive
from turnwright_client import Client

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">On.</update>'
LONG = "echo ran >> effects.txt; echo $$ > pid; sleep 600"


class Box:
    """A sandbox host in a process of its own."""

    def __init__(self, root):
        self._root, self._process = root, None
        for folder in ("host", "there/shop"):
            (root / folder).mkdir(parents=True)
        self.files = root / "there" / "shop"

    def start(self):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURNWRIGHT_")}
        given = {"TOKEN": TOKEN, "HOME": self._root / "host", "SANDBOX_ROOT": self._root / "there", "LOG_LEVEL": "error",
                 "LISTEN": f"unix:{self._root}/box.sock", "SH_SANDBOX": "limits"}  # fmt: skip
        ours = {f"TURNWRIGHT_{name}": str(value) for name, value in given.items()}
        path = os.pathsep.join(str(REPO / folder) for folder in ("services", "gen/python"))
        command = (sys.executable, "-m", "turnwright_sandbox")
        self._process = subprocess.Popen(command, env={**inherited, **ours, "PYTHONPATH": path})

    def kill(self):
        self._process.kill()
        self._process.wait()


async def until(says):
    """Wait until something holds; a test that waits in vain is given up."""
    async with asyncio.timeout(60):
        while not (found := says()):  # noqa: ASYNC110 - files and processes of others tell nothing
            await asyncio.sleep(0.02)
        return found


@pytest.mark.asyncio
async def test_a_command_whose_host_or_executor_is_killed_is_killed_and_not_repeated(tmp_path):
    box = Box(tmp_path)
    pid = box.files / "pid"
    made = Stack(tmp_path, "", executors=2, tool_servers=file_of(tmp_path / "servers.toml", registered(tmp_path)))
    try:
        box.start()
        await made.start()
        first, second = made.lives["executor0"], made.lives["executor1"]
        second.kill()
        wanted = settings_pb2.LoopSettings(model="m", yolo=True)
        for killed, run in ((box, "host"), (first, "executor")):
            await made.add_model("m", f"<sh>{LONG}</sh>{GO_ON}", *[f'<get path="effects.txt"/>{DONE}'] * 5)
            pid.unlink(missing_ok=True)
            (box.files / "effects.txt").write_text("")
            async with Client.connect(made.at("executor0"), SECRET, policy=ENDURING) as client:
                project = (await insisted(lambda: client.init_project("box:/shop"))).name
                await client.act(project, "Do it.", run=run, settings=wanted)
            command = int(await until(lambda: pid.exists() and pid.read_text().strip()))
            killed.kill()
            await until(lambda: not is_alive(command))  # noqa: B023 - it is awaited here
            alive = first if killed is box else second
            (box if killed is box else second).start()
            async with Client.connect(made.at(alive.name), SECRET, policy=ENDURING) as client:
                loop = await insisted(lambda: client.wait_loop(project, run, 1))  # noqa: B023 - the same
                records = [one async for one in client.list_entries(project, run, "log://turn_1/sh/*")]
            assert loop.status == 200, (run, loop.reason)
            assert [record.outcome for record in records] == ["indeterminate:500"], run
            assert (box.files / "effects.txt").read_text() == "ran\n"
    finally:
        made.close()
        box.kill()
