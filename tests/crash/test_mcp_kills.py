"""A server of MCP, or an agent of another vendor, its executor, or both are killed in a call: nothing outside happens twice.

A call of which nobody knows whether it happened is made again only if its tool says that this is harmless, and each
record is settled. Rows RD02, RU014; docs/adr/0084.
"""

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import pytest
from turnwright.types.v1 import settings_pb2

from contract.executor.tool_servers import file_of
from contract.mcp.bridging import AGENT, HOSTILE
from contract.store.harness import SECRET
from crash.stack import ENDURING, Stack, insisted
from turnwright_client import Client

pytestmark = pytest.mark.asyncio

UNKNOWN = "indeterminate:500"
DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">On.</update>'
SETTLED_S = 100


def processes(words: str) -> list[int]:
    """The processes whose command line has these words."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            try:
                line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if words in line:
                found.append(int(place.name))
    return found


def kill(pids) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def server_of(calls: Path, tool: str) -> dict:
    """One that takes its time unless it is called again, and writes down what it begins."""
    kind, program = ("acp", [str(AGENT), "waits"]) if tool == "delegate" else ("mcp", [str(HOSTILE), "slow"])
    return {kind: {"command": sys.executable, "args": [*program, str(calls)], "env": {"ONCE": "yes", "SLOW_S": "1000"}}}


async def listed(client: Client, project: str) -> set[str]:
    found = await insisted(lambda: client.list_tools(project, check=True))
    return {one.name for one in found.tools}


async def killed_in_a_call(root: Path, victims: str, tool: str) -> tuple[list[str], str, int]:
    """What a server has begun, and the outcome and the status of the record, after victims were killed in a call."""
    calls = root / "calls"
    file = file_of(root / "servers.toml", {"slow": server_of(calls, tool)})
    made = Stack(root, "", executors=2, tool_servers=file, sh_sandbox="limits")
    try:
        await made.start()
        first, second = made.lives["executor0"], made.lives["executor1"]
        second.kill()
        call = '<delegate agent="slow">Do it.</delegate>' if tool == "delegate" else f"<slow.{tool}/>"
        await made.add_model("m", f"{call}{GO_ON}", *[DONE] * 5)
        async with Client.connect(made.at(first.name), SECRET) as client:
            async with asyncio.timeout(SETTLED_S):
                # On a busy host what calls the servers may take longer to start than one look at its tools.
                while f"slow.{tool}" not in await listed(client, made.project):
                    continue
            wanted = settings_pb2.LoopSettings(model="m", yolo=True)
            queued = await client.act(made.project, "Do it.", run="r", settings=wanted)
            async with asyncio.timeout(SETTLED_S):
                while not calls.exists():  # noqa: ASYNC110 - a file tells nothing
                    await asyncio.sleep(0.02)
        if "executor" in victims:
            first.kill()
            second.start()
        if "server" in victims:
            kill(processes(str(calls)))
        if "bridge" in victims:
            kill([pid for pid in processes("turnwright_mcp.beside") if belongs(pid, root)])
        name = second.name if "executor" in victims else first.name
        async with Client.connect(made.at(name), SECRET, policy=ENDURING) as client, asyncio.timeout(SETTLED_S):
            await insisted(lambda: client.wait_loop(made.project, "r", queued.sequence))
            record = await insisted(lambda: client.get_entry(made.project, "r", f"log://turn_1/result/slow.{tool}/1"))
            # An agent is of one call, and ends with it.
            while tool == "delegate" and processes(str(calls)):  # noqa: ASYNC110 - a process tells nothing
                await asyncio.sleep(0.05)
    finally:
        made.close()
    return calls.read_text().splitlines(), record.outcome, record.status


def belongs(pid: int, root: Path) -> bool:
    try:
        return str(root) in Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("victims", "tool"),
    [
        *(
            (victims, tool)
            for victims in ("server", "executor", "server and executor")
            for tool in ("idempotent", "work")
        ),
        ("executor", "delegate"),
    ],
)
async def test_a_kill_in_a_call_repeats_nothing_that_is_outside(tmp_path, victims, tool):
    check(await killed_in_a_call(tmp_path, victims, tool), tool)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_kill_of_what_calls_the_servers_has_an_idempotent_call_made_again(tmp_path):
    check(await killed_in_a_call(tmp_path, "bridge", "idempotent"), "idempotent")


def check(found: tuple[list[str], str, int], tool: str) -> None:
    begun, outcome, status = found
    if tool != "idempotent":
        # An agent may be told yet that it is to stop.
        assert [one for one in begun if one != "cancelled"] == ["prompted" if tool == "delegate" else tool]
        assert (outcome, status) == (UNKNOWN, 500)
    else:
        assert set(begun) == {"idempotent"}
        assert len(begun) >= 2
        assert (outcome, status) == ("", 200)


AT_ONCE = 3
"""Stacks in which somebody is killed at a time."""


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_two_hundred_kills_settle_each_record(tmp_path):
    chance, room = random.Random(84), asyncio.Semaphore(AT_ONCE)
    cases = [
        (
            chance.choice(["server", "bridge", "executor", "server and executor"]),
            chance.choice(["idempotent", "work", "delegate"]),
        )
        for _ in range(200)
    ]

    async def one(number: int, victims: str, tool: str) -> None:
        async with room:
            root = tmp_path / str(number)
            root.mkdir()
            found = await killed_in_a_call(root, victims, tool)
            print(f"{number}: {victims} in {tool}: {found}", flush=True)
            check(found, tool)

    async with asyncio.TaskGroup() as tasks:
        for number, case in enumerate(cases):
            tasks.create_task(one(number, *case))
