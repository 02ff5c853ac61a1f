"""What a turn costs outside of the model, against a floor measured in the same run.

The floor is what the same turn must cost at the least here: as many bare gRPC echoes as it makes calls, and as many
SQLite commits as it makes durable. Absolute times move with the machine; the ratio and the counts are what to watch.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import statistics
import time
from collections import Counter

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from sqlalchemy import event
from sqlalchemy.engine import Engine
from turnwright.types.v1 import settings_pb2
from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.wiring import build as build_assembler
from turnwright_client import Client
from turnwright_core.kit.server import RunningServer
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_provider.config import ProviderSettings
from turnwright_provider.wiring import build as build_provider
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build as build_store

pytestmark = pytest.mark.bench

TURNS = 40
SECRET = "bench"


class Calls(grpc.aio.ServerInterceptor):
    """Counts calls by method."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    async def intercept_service(self, continuation, handler_call_details):
        self.counted[handler_call_details.method.rpartition("/")[2]] += 1
        return await continuation(handler_call_details)


class Statements:
    """Counts SQL statements and durable commits of this process."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def __call__(self, _connection, _cursor, statement, *_rest) -> None:
        self.counted[statement.split(None, 1)[0].upper()] += 1


@contextlib.asynccontextmanager
async def stack(tmp_path, calls):
    home = tmp_path / "home"
    home.mkdir()
    at = {name: f"unix:{tmp_path}/{name}" for name in ("store", "provider", "assembler", "executor")}
    common = {"home": home, "token": SECRET, "log_level": "error"}
    services = [
        build_store(StoreSettings(**common), SECRET),
        build_provider(ProviderSettings(**common, scripted_dir=tmp_path, flush_ms=0), SECRET),
        build_assembler(AssemblerSettings(**common, store=at["store"]), SECRET),
        build_executor(
            ExecutorSettings(**common, **{key: at[key] for key in ("store", "provider", "assembler")}), SECRET
        ),
    ]
    async with contextlib.AsyncExitStack() as stopping:
        for service in services:
            server = RunningServer(service, at[service.name], SECRET, 1.0, [calls])
            await server.start()
            stopping.push_async_callback(server.stop)
        yield at["executor"]


def script(turns: int) -> str:
    """Each turn reads one file and notes something; the last one ends the loop."""
    replies = [
        f'<get path="a_{turn}.py"/>\n<set path="known://fact_{turn}">file {turn} was read</set>\n'
        f'<update status="{200 if turn == turns - 1 else 102}">turn {turn}</update>\n'
        for turn in range(turns)
    ]
    return "".join(f"=== reply chunk_chars=100000 delay_ms=0 ===\n{reply}" for reply in replies)


async def echoes(address: str, count: int) -> float:
    """Seconds for so many of the smallest calls, one after another."""
    async with grpc.aio.insecure_channel(address) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        await check(health_pb2.HealthCheckRequest())
        begin = time.perf_counter()
        for _ in range(count):
            await check(health_pb2.HealthCheckRequest())
        return time.perf_counter() - begin


def commits(file, count: int, *, full: bool) -> float:
    """Seconds for so many transactions of one row."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
        database.execute("CREATE TABLE IF NOT EXISTS t(body)")
        begin = time.perf_counter()
        for _ in range(count):
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO t VALUES (?)", ("x" * 500,))
            database.execute("COMMIT")
        return time.perf_counter() - begin


@pytest.mark.asyncio
@pytest.mark.timeout(300)
async def test_a_turn_costs_a_small_multiple_of_its_floor(tmp_path, monkeypatch):
    (tmp_path / "bench.txt").write_text(script(TURNS))
    project = tmp_path / "project"
    project.mkdir()
    for turn in range(TURNS):
        (project / f"a_{turn}.py").write_text(f"value = {turn}\n" * 40)
    monkeypatch.setenv("TURNWRIGHT_MODEL_bench", "scripted/bench")
    calls, statements = Calls(), Statements()
    async with stack(tmp_path, calls) as address, Client.connect(address, SECRET) as client:
        name = (await client.init_project(str(project))).name
        event.listen(Engine, "before_cursor_execute", statements)
        calls.counted.clear()
        try:
            begin, begin_cpu = time.perf_counter(), time.process_time()
            settings = settings_pb2.LoopSettings(model="bench", yolo=True)
            queued = await client.act(name, "read everything", settings=settings)
            async with contextlib.aclosing(client.watch(name, queued.run, queued.cursor)) as events:
                async for one in events:
                    if one.WhichOneof("event") == "run_state" and one.run_state.loop.end_time.seconds:
                        loop = one.run_state.loop
                        break
            wall, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
        finally:
            event.remove(Engine, "before_cursor_execute", statements)
        made = calls.counted.copy()
        turns = (await client.get_run(name, queued.run, turns_max=TURNS)).turns
        floor_calls = await asyncio.wait_for(echoes(address, made.total()), 60)
    assert loop.status == 200
    assert loop.turns == TURNS
    model_s = sum(turn.result.model_ms for turn in turns) / 1000
    floor = floor_calls + commits(tmp_path / "f.db", 2 * TURNS, full=True) + commits(tmp_path / "n.db", TURNS, full=False)
    overhead = wall - model_s
    median_ms = statistics.median(turn.result.model_ms for turn in turns)
    print()
    print(f"turns {TURNS}; per turn: overhead {overhead / TURNS * 1e3:.2f} ms wall, {cpu / TURNS * 1e3:.2f} ms CPU,")
    print(f"  model call {median_ms} ms (median, provider and relay included)")
    print(f"floor per turn: {floor / TURNS * 1e3:.2f} ms; ratio {overhead / floor:.2f}")
    per_turn = {key: round(count / TURNS, 2) for key, count in made.most_common()}
    print(f"RPCs per turn: {made.total() / TURNS:.2f} {per_turn}")
    per_turn = {key: round(count / TURNS, 2) for key, count in statements.counted.most_common()}
    print(f"SQL statements per turn: {statements.counted.total() / TURNS:.1f} {per_turn}")
