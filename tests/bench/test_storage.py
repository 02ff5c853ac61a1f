"""How many bytes the store keeps for a byte that a run reads: 200 turns, each with two files that no other turn reads.

With TURNWRIGHT_TEST_POSTGRES it is measured on PostgreSQL too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench.processes import process
from bench.test_durable_turns import SECRET, Stack
from turnwright_client import Client

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

TURNS = 200
FILES_A_TURN = 2
FILE_BYTES = 1024
STORED_MAX = {
    ("sqlite", "random words"): 4.3,
    ("sqlite", "prose"): 2.5,
    ("postgresql", "random words"): 17.0,
    ("postgresql", "prose"): 9.0,
}
"""Bytes that are stored at most for a byte of payload, the search index included."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def random_words(source: random.Random) -> str:
    """Words that no other file has: the worst that a search index can meet."""
    words = ("".join(source.choices(LETTERS, k=source.randint(3, 9))) for _ in iter(int, 1))
    return lines_of(words)


def prose_words(source: random.Random) -> str:
    """Words of a vocabulary of 5,000, frequent ones more often, as in texts and source code."""
    ranks = (min(4999, int(source.paretovariate(0.7)) - 1) for _ in iter(int, 1))
    return lines_of(VOCABULARY[rank] for rank in ranks)


VOCABULARY = [
    "".join(random.Random(rank).choices(LETTERS, k=random.Random(-rank).randint(2, 10))) for rank in range(1, 5001)
]


def lines_of(words: Iterator[str]) -> str:
    """1 KB in lines."""
    text, line = "", ""
    while len(text) < FILE_BYTES:
        line += next(words) + " "
        if len(line) > 60:
            text, line = f"{text}{line.strip()}\n", ""
    return text[:FILE_BYTES]


CONTENTS = {"random words": random_words, "prose": prose_words}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_stored_bytes_a_byte_of_payload(request, tmp_path, kind, content):
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else ""
    payload = _write_project(tmp_path, content)
    address = f"unix:{tmp_path}/executor.sock"
    settings = {
        "TURNWRIGHT_HOME": str(tmp_path / "home"),
        "TURNWRIGHT_DB": url,
        "TURNWRIGHT_TOKEN": SECRET,
        "TURNWRIGHT_LOG_LEVEL": "error",
        "TURNWRIGHT_SCRIPTED_DIR": str(tmp_path),
        "TURNWRIGHT_LOOP_TURNS_MAX": str(TURNS + 1),
        "TURNWRIGHT_MODEL_m": "scripted/replies",
        "TURNWRIGHT_CONTEXT_m": "2000000",
    }
    serve = ("-m", "turnwright_cli", "serve", "--listen", f"executor={address}")
    async with process(*serve, address=address, **settings), Client.connect(address, SECRET) as client:
        stack = Stack(tmp_path, address, client=client)
        stack.project = (await client.init_project(str(tmp_path / "project"))).name
        await stack.work("r", "m")
        file = tmp_path / "home" / "turnwright.db"
        connect = (lambda: psycopg.connect(url, autocommit=True)) if url else (lambda: sqlite3.connect(file))
        await _until_indexed(connect)
    with contextlib.closing(connect()) as database:
        sizes = (_sizes_on_postgresql if url else _sizes_on_sqlite)(database)
    stored = sum(sizes.values())
    shares = ", ".join(f"{name} {size / payload:.2f}" for name, size in sizes.items() if size > payload / 50)
    print(f"\n[{kind}] {TURNS} turns, {content}: {stored / payload:.2f} bytes stored for one of {payload:,}: {shares}")
    assert stored / payload <= STORED_MAX[kind, content]


def _write_project(folder: Path, content: str) -> int:
    """Write the files and the replies; how many bytes the run reads and writes of them."""
    for name in ("home", "project"):
        (folder / name).mkdir()
    source = random.Random(11)
    for number in range(TURNS * FILES_A_TURN):
        (folder / "project" / f"f_{number}.txt").write_text(CONTENTS[content](source))
    replies = [
        "".join(f'<get path="f_{turn * FILES_A_TURN + place}.txt"/>\n' for place in range(FILES_A_TURN))
        + f'<update status="{200 if turn == TURNS - 1 else 102}">turn {turn}</update>'
        for turn in range(TURNS)
    ]
    (folder / "replies.txt").write_text(
        "".join(f"=== reply chunk_chars=100000 delay_ms=0 ===\n{reply}\n" for reply in replies)
    )
    return TURNS * FILES_A_TURN * FILE_BYTES + sum(map(len, replies))


async def _until_indexed(connect: Callable[[], Any]) -> None:
    """Wait for the search index and for all that is done in the background."""
    deadline = time.monotonic() + 60
    with contextlib.closing(connect()) as database:
        behind = (
            "SELECT count(*) FROM projects p JOIN scopes s ON s.id = p.scope_id LEFT JOIN search_marks m "
            "ON m.scope_id = s.id WHERE s.revision > coalesce(m.revision, 0)"
        )
        while database.execute(behind).fetchone()[0]:
            assert time.monotonic() < deadline, "the search index does not catch up"
            await asyncio.sleep(0.2)


def _sizes_on_sqlite(database: sqlite3.Connection) -> dict[str, int]:
    """Bytes of each table with its indexes, the largest first; those of free pages left out."""
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    tables = dict(database.execute("SELECT name, tbl_name FROM sqlite_master").fetchall())
    sizes: dict[str, int] = {}
    for name, size in database.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name").fetchall():
        table = "search" if name.startswith("search_") and name != "search_marks" else tables.get(name, "schema")
        sizes[table] = sizes.get(table, 0) + size
    return dict(sorted(sizes.items(), key=lambda one: -one[1]))


def _sizes_on_postgresql(database: psycopg.Connection) -> dict[str, int]:
    """The same after a vacuum, catalogs left out."""
    database.execute("VACUUM")
    tables = "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables ORDER BY 2 DESC"
    return dict(database.execute(tables).fetchall())
