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

from services import running
from sql_counter import counted_statements
from turnwright_core.wire.times import seconds_from_pb, span_from_pb

pytestmark = pytest.mark.bench

TURNS = 40


class Calls(grpc.aio.ServerInterceptor):
    """Counts calls by method."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    async def intercept_service(self, continuation, handler_call_details):
        self.counted[handler_call_details.method.rpartition("/")[2]] += 1
        return await continuation(handler_call_details)


def replies(turns: int) -> list[str]:
    """Each turn reads one file and notes something; the last one ends the loop."""
    return [
        f'<get path="a_{turn}.py"/>\n<set path="known://fact_{turn}">file {turn} was read</set>\n'
        f'<update status="{200 if turn == turns - 1 else 102}">turn {turn}</update>'
        for turn in range(turns)
    ]


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
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    calls = Calls()
    with counted_statements() as statements:
        async with running(tmp_path, [calls]) as services:
            services.script(*replies(TURNS))
            for turn in range(TURNS):
                (services.files / f"a_{turn}.py").write_text(f"value = {turn}\n" * 40)
            calls.counted.clear()
            statements.clear()
            begin, begin_cpu = time.perf_counter(), time.process_time()
            loop = await services.until(await services.act("Read everything."))
            wall, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
            made, sent = calls.counted.copy(), statements.copy()
            turns = (await services.client.get_run(services.project, "r", turns_max=TURNS)).turns
            floor_calls = await asyncio.wait_for(echoes(services.addresses["executor"], made.total()), 60)
    assert loop.status == 200
    assert loop.turns == TURNS
    model_s = sum(seconds_from_pb(turn.result.model_duration) for turn in turns)
    floor = (
        floor_calls + commits(tmp_path / "f.db", 2 * TURNS, full=True) + commits(tmp_path / "n.db", TURNS, full=False)
    )
    overhead = wall - model_s
    median_ms = statistics.median(span_from_pb(turn.result.model_duration) for turn in turns)
    print()
    print(f"turns {TURNS}; per turn: overhead {overhead / TURNS * 1e3:.2f} ms wall, {cpu / TURNS * 1e3:.2f} ms CPU,")
    print(f"  model call {median_ms} ms (median, provider and relay included)")
    print(f"floor per turn: {floor / TURNS * 1e3:.2f} ms; ratio {overhead / floor:.2f}")
    per_turn = {key: round(count / TURNS, 2) for key, count in made.most_common()}
    print(f"RPCs per turn: {made.total() / TURNS:.2f} {per_turn}")
    per_turn = {key: round(count / TURNS, 2) for key, count in sent.most_common()}
    print(f"SQL statements per turn: {sent.total() / TURNS:.1f} {per_turn}")
