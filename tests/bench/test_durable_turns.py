"""What a durable turn costs in all processes together, against a floor of echoes and commits measured in the same run.

A turn here is two reads of 1 KB and an update, with a model that takes no time. The services run as four processes or
as one; their CPU is the kernel's count. Ratios and CPU are what to watch: wall times move with the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from turnwright.types.v1 import settings_pb2

from bench.processes import ECHO_METHOD, process
from turnwright_client import Client
from turnwright_client.client import QueuedLoop, loop_in
from turnwright_core.runs import LOOP_ENDED

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

SECRET = "bench-secret"
TICKS_S = os.sysconf("SC_CLK_TCK")
TURNS_MAX = 200

RPCS_A_TURN = 4
"""Calls that the services make among themselves in such a turn, over a network or without one."""

COMMITS_A_TURN = 2
"""Transactions of the store in such a turn."""


@dataclass
class Stack:
    """Services that run, and a client of theirs."""

    folder: Path
    executor: str
    pids: list[int] = field(default_factory=list)
    client: Client = None
    project: str = ""

    def cpu_s(self) -> float:
        """Seconds of CPU that all processes have used so far."""
        return sum(_cpu_s(pid) for pid in self.pids)

    def rss_mb(self) -> float:
        """Memory that they hold now, what they share counted in each."""
        return sum(_rss_mb(pid) for pid in self.pids)

    async def work(self, run: str, model: str) -> None:
        """Run a task to its end."""
        settings = settings_pb2.LoopSettings(model=model, yolo=True)
        queued = await self.client.act(self.project, "Read.", run=run, settings=settings)
        await self._until_ended(queued)

    async def _until_ended(self, queued: QueuedLoop) -> None:
        async with contextlib.aclosing(self.client.watch(queued.project, queued.run, queued.cursor)) as events:
            async for event in events:
                loop = loop_in(event)
                if loop and loop.status in LOOP_ENDED:
                    assert loop.status == 200
                    return


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_S


def _rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def _write_script(folder: Path, turns: int) -> None:
    replies = (
        f'<get path="a_{turn % 20}.txt"/>\n<get path="b_{turn % 20}.txt"/>\n'
        f'<update status="{200 if turn == turns - 1 else 102}">turn {turn}</update>'
        for turn in range(turns)
    )
    text = "".join(f"=== reply chunk_chars=100000 delay_ms=0 ===\n{reply}\n" for reply in replies)
    (folder / f"t{turns}.txt").write_text(text)


@contextlib.asynccontextmanager
async def embedded(folder: Path, common: dict[str, str]) -> AsyncIterator[tuple[str, list[int]]]:
    """All services in one process."""
    # Sockets of its own for every service: a second stack may run beside this one.
    at = {name: f"unix:{folder}/{name}.sock" for name in ("store", "provider", "assembler", "executor")}
    listen = [part for name, address in at.items() for part in ("--listen", f"{name}={address}")]
    async with process("-m", "turnwright_cli", "serve", *listen, address=at["executor"], **common) as pid:
        yield at["executor"], [pid]


@contextlib.asynccontextmanager
async def four_processes(folder: Path, common: dict[str, str]) -> AsyncIterator[tuple[str, list[int]]]:
    """Each service in a process of its own."""
    at = {name: f"unix:{folder}/{name}.sock" for name in ("store", "provider", "assembler", "executor")}
    peers = {f"TURNWRIGHT_{name.upper()}": address for name, address in at.items()}
    async with contextlib.AsyncExitStack() as stack:
        pids = []
        for name, address in at.items():
            settings = {**common, **peers, "TURNWRIGHT_LISTEN": address}
            started = process("-m", f"turnwright_{name}", address=address, **settings)
            pids.append(await stack.enter_async_context(started))
        yield at["executor"], pids


@pytest_asyncio.fixture(params=[embedded, four_processes])
async def stack(request, tmp_path) -> AsyncIterator[Stack]:
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    for number in range(20):
        for name in "ab":
            (tmp_path / "project" / f"{name}_{number}.txt").write_text(f"{name} {number}: " + "line of text\n" * 78)
    for turns in (2, 10, 50, TURNS_MAX):
        _write_script(tmp_path, turns)
    common = {
        "TURNWRIGHT_HOME": str(tmp_path / "home"),
        "TURNWRIGHT_TOKEN": SECRET,
        "TURNWRIGHT_LOG_LEVEL": "error",
        "TURNWRIGHT_SCRIPTED_DIR": str(tmp_path),
        "TURNWRIGHT_LOOP_TURNS_MAX": str(TURNS_MAX + 1),
        **{f"TURNWRIGHT_MODEL_t{turns}": f"scripted/t{turns}" for turns in (2, 10, 50, TURNS_MAX)},
        # Wide enough for everything: what is measured is no demotion.
        **{f"TURNWRIGHT_CONTEXT_t{turns}": "1000000" for turns in (2, 10, 50, TURNS_MAX)},
    }
    async with request.param(tmp_path, common) as (executor, pids), Client.connect(executor, SECRET) as client:
        made = Stack(tmp_path, executor, pids, client)
        made.project = (await client.init_project(str(tmp_path / "project"))).name
        await made.work("warm", "t10")
        print(f"\n[{request.param.__name__}]", end=" ")
        yield made


async def _floor(folder: Path, turns: int) -> tuple[float, float]:
    """Wall and CPU seconds of as many echoes and commits as the turns make, the CPU of both sides counted."""
    address = f"unix:{folder}/echo.sock"
    command = (str(Path(__file__).parent / "processes.py"), address)
    async with process(*command, address=address) as pid, grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(ECHO_METHOD)
        begin, cpu = time.perf_counter(), time.process_time() + _cpu_s(pid)
        for _ in range(turns * RPCS_A_TURN):
            await call(b"x" * 100)
        _commit(folder / "floor.db", turns * COMMITS_A_TURN)
        return time.perf_counter() - begin, time.process_time() + _cpu_s(pid) - cpu


def _commit(file: Path, count: int) -> None:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        database.execute("CREATE TABLE IF NOT EXISTS t(body)")
        for _ in range(count):
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO t VALUES (?)", ("x" * 500,))
            database.execute("COMMIT")


async def test_one_run_and_32_at_once(stack):
    for runs, turns in ((1, 50), (32, 10)):
        begin, cpu = time.perf_counter(), stack.cpu_s()
        await asyncio.gather(*(stack.work(f"r{runs}_{number}", f"t{turns}") for number in range(runs)))
        wall, cpu = time.perf_counter() - begin, stack.cpu_s() - cpu
        total = runs * turns
        floor_wall, floor_cpu = await _floor(stack.folder, min(total, 100))
        floor_wall, floor_cpu = floor_wall * total / min(total, 100), floor_cpu * total / min(total, 100)
        assert cpu > 0
        print(
            f"{runs} runs of {turns} turns: {cpu / total * 1e3:.1f} ms CPU and {wall / total * 1e3:.1f} ms a turn, "
            f"{total / wall:.0f} turns/s; floor {floor_cpu / total * 1e3:.1f} ms CPU and "
            f"{floor_wall / total * 1e3:.1f} ms; ratio of CPU {cpu / floor_cpu:.1f}"
        )


async def test_a_late_turn_costs_what_an_early_one_costs(stack):
    settings = settings_pb2.LoopSettings(model=f"t{TURNS_MAX}", yolo=True)
    queued = await stack.client.act(stack.project, "Read.", run="long", settings=settings)
    used = {}
    async with contextlib.aclosing(stack.client.watch(queued.project, queued.run, queued.cursor)) as events:
        async for event in events:
            if event.HasField("turn_finished"):
                used[event.turn_finished.turn.number] = stack.cpu_s()
            loop = loop_in(event)
            if loop and loop.status in LOOP_ENDED:
                break
    costs = {end: (used[end] - used[end - 60]) / 60 * 1e3 for end in (65, 130, 195)}
    assert all(cost > 0 for cost in costs.values())
    told = ", ".join(f"{end - 60} to {end} {cost:.1f}" for end, cost in costs.items())
    print(f"ms CPU a turn, turns {told}; ratio {costs[195] / costs[65]:.2f}")


async def test_start_and_memory(stack, tmp_path_factory):
    print(f"{stack.rss_mb():.0f} MB after ten turns")
    if len(stack.pids) > 1:
        assert stack.rss_mb() > 0
        return
    times = []
    for number in range(3):
        folder = tmp_path_factory.mktemp(f"start_{number}")
        common = {"TURNWRIGHT_HOME": str(folder), "TURNWRIGHT_TOKEN": SECRET, "TURNWRIGHT_LOG_LEVEL": "error"}
        begin = time.perf_counter()
        async with embedded(folder, common) as (address, pids), grpc.aio.insecure_channel(address) as channel:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            times.append((time.perf_counter() - begin, _cpu_s(pids[0]), _rss_mb(pids[0])))
    wall, cpu, memory = map(statistics.median, zip(*times, strict=True))
    assert wall > 0
    print(f"start to READY {wall:.2f} s, {cpu:.2f} s CPU, {memory:.0f} MB")
