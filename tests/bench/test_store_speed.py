"""What the store costs beside floors that are measured in the same run: bare echoes, bare SQL.

The store and the echo server are processes of their own. Absolute times move with the machine; the ratios are what to
watch. With TURNWRIGHT_TEST_POSTGRES everything is measured on PostgreSQL too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import sqlite3
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from turnwright.store.v1 import ledger_pb2, read_pb2, write_pb2
from turnwright.types.v1 import packet_pb2, turn_pb2

from bench.packets import Packets
from bench.processes import ECHO_METHOD, echo_process, store_process
from contract.store.harness import (
    RECORDED,
    RESOLVED,
    SECRET,
    STREAMING,
    Client,
    Run,
    append,
    new_project,
    request,
    set_,
    working_run,
)
from turnwright_core.delta_encoding import Copied
from turnwright_core.rpc.headers import call_metadata
from turnwright_core.value_methods import to_attributes_json
from turnwright_core.wire.packets import piece_to_pb

METADATA = call_metadata(SECRET)

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

ROUNDS = 7
"""Each figure is the median over rounds in which all that is compared takes turns."""

BODY = "The quick brown fox jumps over the lazy dog, and then it has to come back again. " * 12
"""About 1 KB."""

STORED_MAX = {"sqlite": 2.0, "postgresql": 4.0}
"""Bytes that are stored at most for a byte of results; a row of PostgreSQL has 28 bytes more, and each number 8."""

Step = Callable[[], Awaitable[object]]


@dataclass
class Bench:
    """A store with a working run, and an echo server."""

    kind: str
    folder: Path
    client: Client
    run: Run
    echo: Step
    db: str = ""

    async def send(self, rpc: str, request: object) -> object:
        """One rpc as any client's stub makes it: nothing of ours is around it."""
        return await self.client.rpc(rpc)(request, metadata=METADATA, timeout=20)

    def write_of(self, *writes: write_pb2.EntryWrite, **more: object) -> ledger_pb2.WriteEntriesRequest:
        """A request that writes."""
        return ledger_pb2.WriteEntriesRequest(**self.run.address, epoch=self.run.epoch, writes=writes, **more)

    def say(self, text: str) -> None:
        print(f"[{self.kind}] {text}")


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request) -> str:
    if request.param == "postgresql" and not os.environ.get("TURNWRIGHT_TEST_POSTGRES"):
        pytest.skip("TURNWRIGHT_TEST_POSTGRES names no PostgreSQL server")
    return request.param


@pytest_asyncio.fixture
async def bench(kind, tmp_path) -> AsyncIterator[Bench]:
    with _database(kind) as db:
        async with contextlib.AsyncExitStack() as stack:
            echo = await stack.enter_async_context(echo_process(tmp_path))
            store = await stack.enter_async_context(store_process(tmp_path, SECRET, db))
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(echo))
            call = channel.unary_unary(ECHO_METHOD)
            client = Client(store)
            stack.push_async_callback(client.close)
            run = await working_run(client, await new_project(client), "bench")
            print()
            yield Bench(kind, tmp_path, client, run, lambda: call(b"x" * 100), db)


@contextlib.contextmanager
def _database(kind: str) -> Iterator[str]:
    if kind == "sqlite":
        yield ""
        return
    import psycopg

    server = os.environ["TURNWRIGHT_TEST_POSTGRES"]
    name = f"bench_{os.getpid()}_{time.monotonic_ns()}"
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        try:
            yield server.rpartition("/")[0] + f"/{name}"
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def medians(count: int, **steps: Step) -> dict[str, float]:
    """Milliseconds that one call of each step takes, the steps taking turns."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            for _ in range(count):
                begin = time.perf_counter()
                await step()
                taken[name].append((time.perf_counter() - begin) * 1000)
    return {name: statistics.median(times) for name, times in taken.items()}


async def test_one_write_and_one_read(bench):
    count = 60
    numbers = range(ROUNDS * count)
    await bench.run.write(set_("known://read", BODY))
    writes = iter([bench.write_of(set_(f"known://fact_{number}", BODY)) for number in numbers])
    rewrites = iter([bench.write_of(set_("known://same", f"{BODY} {number}")) for number in numbers])
    one = read_pb2.GetEntriesRequest(**bench.run.address, paths=["known://read"])

    async def write():
        await bench.send("WriteEntries", next(writes))

    async def rewrite():
        await bench.send("WriteEntries", next(rewrites))

    async def read():
        await bench.send("GetEntries", one)

    times = await medians(count, echo=bench.echo, write=write, rewrite=rewrite, read=read)
    assert times["read"] > 0
    for name in ("write", "rewrite", "read"):
        bench.say(f"{name}: {times[name]:.2f} ms, {times[name] / times['echo']:.2f} echoes of {times['echo']:.2f} ms")


async def test_rows_in_batches(bench):
    rows, lanes, batches = 64, 4, 12
    number = iter(range(10**9))

    def batch(durability: int) -> ledger_pb2.WriteEntriesRequest:
        writes = [set_(f"known://b_{next(number)}", BODY) for _ in range(rows)]
        return bench.write_of(*writes, durability=durability)

    async def lane(requests: list[ledger_pb2.WriteEntriesRequest]) -> None:
        for one in requests:
            await bench.send("WriteEntries", one)

    rates = {}
    for name, durability in (("normal", 1), ("full", 2)):
        found = []
        for _ in range(3):
            requests = [[batch(durability) for _ in range(batches)] for _ in range(lanes)]
            begin = time.perf_counter()
            await asyncio.gather(*map(lane, requests))
            found.append(rows * lanes * batches / (time.perf_counter() - begin))
        rates[name] = max(found)
    floor = _raw_rows(bench.folder / "raw.db", rows, lanes * batches)
    assert floor > 0
    for name, rate in rates.items():
        bench.say(f"64 rows a call, {name}: {rate:,.0f} rows/s, {rate / floor:.3f} of raw executemany {floor:,.0f}")


def _raw_rows(file: Path, rows: int, batches: int) -> float:
    """Rows a second of executemany into one SQLite table with a unique path."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=NORMAL")
        raw.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, path TEXT UNIQUE, body TEXT)")
        begin = time.perf_counter()
        for number in range(batches):
            raw.execute("BEGIN")
            raw.executemany(
                "INSERT INTO t(path, body) VALUES (?, ?)", [(f"known://{number}_{row}", BODY) for row in range(rows)]
            )
            raw.execute("COMMIT")
        return rows * batches / (time.perf_counter() - begin)


async def fill(run: Run, count: int) -> None:
    """Entries of 100 bytes."""
    for first in range(0, count, 1000):
        await run.write(*(set_(f"known://e_{number}", BODY[:100]) for number in range(first, min(first + 1000, count))))


async def test_what_changed_costs_what_the_change_costs(bench):
    large = await working_run(bench.client, bench.run.project, "large")
    await fill(bench.run, 100)
    await fill(large, 10_000)
    number = iter(range(10**9))

    async def changed(run: Run) -> float:
        cursor = (await run.write(*(set_(f"known://e_{row}", f"{next(number)}") for row in range(10)))).cursor
        await run.write(*(set_(f"known://e_{row}", f"{next(number)}") for row in range(10)))
        begin = time.perf_counter()
        view = await run.view(after=cursor)
        taken = time.perf_counter() - begin
        assert len(view.entries) == 10
        return taken * 1000

    small_ms, large_ms = [], []
    for _ in range(40):
        small_ms.append(await changed(bench.run))
        large_ms.append(await changed(large))
    small, big = statistics.median(small_ms), statistics.median(large_ms)
    whole = (await medians(1, whole=large.view))["whole"]
    assert big > 0
    bench.say(
        f"ten changes: {small:.2f} ms of 100 entries, {big:.2f} ms of 10,000 ({big / small:.2f}x); whole view {whole:.0f} ms"
    )


async def test_a_fork_costs_its_rows(bench):
    run = await working_run(bench.client, bench.run.project, "parent")
    await fill(run, 10_000)
    number = iter(range(10**9))

    async def fork():
        await bench.client.call("ForkRun", **run.address, new_run=f"fork_{next(number)}")

    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        await fork()
        times.append((time.perf_counter() - begin) * 1000)
    taken = statistics.median(times)
    floor = _raw_fork(bench.folder / "raw_fork.db", 10_000)
    assert floor > 0
    bench.say(
        f"fork of 10,000 views: {taken:.1f} ms, {taken / floor:.2f} of a bare INSERT ... SELECT on SQLite ({floor:.1f} ms)"
    )


def _raw_fork(file: Path, count: int) -> float:
    """Milliseconds of copying so many rows like those of views, with the same indexes, inside SQLite."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=FULL")
        raw.execute(
            "CREATE TABLE v(id INTEGER PRIMARY KEY, run INT, entry INT, path TEXT, a INT, b INT, c INT, d INT, e INT, f INT, g TEXT, h INT)"
        )
        raw.execute("CREATE UNIQUE INDEX p ON v(run, path)")
        raw.execute("CREATE INDEX o ON v(run, a)")
        rows = [(1, n, f"known://e_{n}", n, 0, 0, 1, 4, 0, "", n) for n in range(count)]
        raw.execute("BEGIN")
        raw.executemany("INSERT INTO v(run,entry,path,a,b,c,d,e,f,g,h) VALUES (?,?,?,?,?,?,?,?,?,?,?)", rows)
        raw.execute("COMMIT")
        times = []
        for target in range(2, 2 + ROUNDS):
            begin = time.perf_counter()
            raw.execute(
                "INSERT INTO v(run,entry,path,a,b,c,d,e,f,g,h) SELECT ?,entry,path,a,b,c,d,e,f,g,h FROM v WHERE run = 1",
                (target,),
            )
            times.append((time.perf_counter() - begin) * 1000)
        return statistics.median(times)


async def test_an_append_costs_its_chunk(bench):
    for path, size in (("sh://small", 10_000), ("sh://large", 10_000_000)):
        await bench.run.write(set_(path, "", state=STREAMING))
        for _ in range(0, size, 500_000):
            await bench.run.write(append(path, "x" * min(size, 500_000)))

    async def add(path: str) -> None:
        await bench.run.write(append(path, "y" * 100))

    times = await medians(30, small=lambda: add("sh://small"), large=lambda: add("sh://large"), echo=bench.echo)
    assert times["small"] > 0
    bench.say(
        f"append of 100 B: {times['small']:.2f} ms at 10 KB, {times['large']:.2f} ms at 10 MB "
        f"({times['large'] / times['small']:.2f}x); echo {times['echo']:.2f} ms"
    )


async def test_the_bookkeeping_of_a_turn(bench):
    count = 15
    turns = iter([_turn_of(bench, number) for number in range(1, ROUNDS * count + 1)])
    await bench.send("EndTurn", ledger_pb2.EndTurnRequest(**_owner(bench), next=ledger_pb2.NextTurn(request=request())))

    async def turn():
        for rpc, message in next(turns):
            await bench.send(rpc, message)

    times = await medians(count, echo=bench.echo, turn=turn)
    assert times["turn"] > 0
    bench.say(
        f"bookkeeping of a turn of 5 commands, 3 calls: {times['turn']:.2f} ms, {times['turn'] / times['echo']:.2f} echoes"
    )


def _owner(bench: Bench) -> dict[str, object]:
    return {**bench.run.address, "epoch": bench.run.epoch}


def _turn_of(bench: Bench, number: int) -> list[tuple[str, object]]:
    """The calls of a turn of five commands, as its owner makes them: packet, RECORD, the end with the next begin."""
    common = _owner(bench)
    paths = [f"log://turn_{number}/get/a_{place}" for place in range(5)]
    attributes = json.dumps({"name": "get", "path": "src/app.py", "effect": "pure"})
    reply = set_(f"assistant://{number}", BODY[:500])
    result = turn_pb2.TurnResult(finish="stop", status=102, reason="continue")
    results = [set_(path, BODY[:500], state=RESOLVED) for path in paths]
    told = [piece_to_pb(f"{number}, {BODY[:500]}")] + ([piece_to_pb(Copied(0, number - 1))] if number > 1 else [])
    packet = write_pb2.PacketRecord(
        turn=number,
        messages=[packet_pb2.PacketMessage(role=packet_pb2.PACKET_ROLE_USER, pieces=told)],
        base_turn=number - 1,
    )
    end = ledger_pb2.EndTurnRequest(
        **common, turn=number, result=result, writes=results, next=ledger_pb2.NextTurn(request=request())
    )
    record = bench.write_of(reply, *(set_(path, "", attributes, state=RECORDED) for path in paths))
    return [
        ("WriteEntries", ledger_pb2.WriteEntriesRequest(**common, packet=packet)),
        ("WriteEntries", record),
        ("EndTurn", end),
    ]


async def test_what_200_turns_store(bench):
    """Two tool results of 1 KB a turn, text as tools give it: lines of source code."""
    run = await working_run(bench.client, bench.run.project, "turns")
    source = "".join(file.read_text() for file in sorted((Path(__file__).parents[2] / "services").rglob("*.py")))
    results = iter(source[at : at + 1024] for at in range(0, len(source), 1024))
    before = _stored_bytes(bench)
    for packets in (None, Packets()):
        for _ in range(200):
            await _stored_turn(run, [next(results), next(results)], packets)
        grown, before = _stored_bytes(bench) - before, _stored_bytes(bench)
        ratio = grown / (200 * 2 * 1024)
        kept = "with the packets that show them" if packets else "without packets"
        bench.say(f"200 turns of 2 results of 1 KB {kept}: {ratio:.2f} bytes stored for a byte of results")
        assert ratio <= STORED_MAX[bench.kind]


async def _stored_turn(run: Run, results: list[str], packets: Packets | None) -> None:
    """A turn of two commands as its owner writes it."""
    number = (await run.begin()).next.number
    if packets is not None:
        await run.write(packet=packets.record(number))
    paths = [f"log://turn_{number}/get/src_file_{place}_py" for place in range(2)]
    attributes = to_attributes_json({"ordinal": 1, "name": "get", "path": "src/file.py", "effect": "pure"})
    await run.write(
        set_(f"assistant://{number}", "I will look at it."),
        *(set_(path, "", attributes, state=RECORDED) for path in paths),
    )
    await run.write(*(set_(path, text, state=RESOLVED) for path, text in zip(paths, results, strict=True)))
    if packets is not None:
        packets.show({path: (text, attributes) for path, text in zip(paths, results, strict=True)}, number)
    digests = {
        "fingerprint": hashlib.sha256(b"%d" % number).hexdigest(),
        "packet_digest": hashlib.sha256(b"p%d" % number).hexdigest(),
    }
    await run.end(number, finish="stop", status=102, reason="continue", packet_tokens=5000, **digests)


def _stored_bytes(bench: Bench) -> int:
    """What the database holds."""
    if bench.kind == "postgresql":
        import psycopg

        with psycopg.connect(bench.db, autocommit=True) as server:
            return server.execute("SELECT pg_database_size(current_database())").fetchone()[0]
    with contextlib.closing(sqlite3.connect(bench.folder / "bench.db")) as database:
        pages, free = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count"))
        return (pages - free) * database.execute("PRAGMA page_size").fetchone()[0]
