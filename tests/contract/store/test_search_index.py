"""The full-text index of SQLite: it holds words and no texts, and nothing of what has been overwritten."""

import contextlib
import random
import sqlite3

import pytest

from contract.store.harness import SQLITE_ONLY, Client, new_project, new_run, start_store
from contract.store.test_search import find, paths, write_paths

pytestmark = [pytest.mark.asyncio, SQLITE_ONLY]

INDEX_SHARE_MAX = 0.75
"""Bytes of the index for one of text, at most. A copy of the texts alone would be 1."""


@contextlib.asynccontextmanager
async def indexing(home):
    """A run in a store that does not wait long before it indexes."""
    server = await start_store(home, search_index_s=0.02)
    client = Client(server.address)
    yield client
    await client.close()
    await server.stop()


@contextlib.contextmanager
def opened(home):
    with contextlib.closing(sqlite3.connect(home / "turnwright.db", isolation_level=None)) as file:
        yield file


def index_bytes(home):
    """Bytes of the values in all tables of the index."""
    with opened(home) as file:
        tables = file.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'search\\_%' ESCAPE '\\'"
        ).fetchall()
        total = 0
        for (table,) in tables:
            columns = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
            values = " + ".join(f"coalesce(length(CAST({column} AS BLOB)), 0)" for column in columns)
            total += file.execute(f"SELECT coalesce(sum({values}), 0) FROM {table}").fetchone()[0]
        return total


def indexed_words(home):
    with opened(home) as file:
        file.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab (main, search, row)")
        return {word for (word,) in file.execute("SELECT term FROM words")}


def prose(count):
    """Texts of 1 KB of 2,000 words, few of them common and many rare."""
    chance = random.Random(5)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 10))) for _ in range(2000)]
    weights = [1 / place for place in range(1, len(words) + 1)]
    return [" ".join(chance.choices(words, weights, k=150)) for _ in range(count)]


async def test_the_index_holds_no_copy_of_the_texts(tmp_path):
    texts = prose(300)
    async with indexing(tmp_path) as client:
        run = await new_run(client, await new_project(client))
        await write_paths(run, {f"f{number}": text for number, text in enumerate(texts)})
        await find(run, "x")
    assert index_bytes(tmp_path) < INDEX_SHARE_MAX * sum(map(len, texts))


async def test_nothing_stays_of_what_was_overwritten(tmp_path):
    """Camel case, accents and long words too: what stands behind the text in the index goes with it."""
    async with indexing(tmp_path) as client:
        run = await new_run(client, await new_project(client))
        for version in range(4):
            bodies = {
                f"a{number}": f"common version{version} parseReply{version}Now Straße{version} {'x' * 70}{version}\0q"
                for number in range(70)
            }
            await write_paths(run, bodies)
            assert len(await paths(run, f"version{version}", limit=100)) == 70
        await write_paths(run, {f"a{number}": "last" for number in range(70)})
        assert await paths(run, "common") == []
    assert indexed_words(tmp_path) == {"last", *(f"a{number}" for number in range(70))}


async def test_an_index_by_other_rules_of_words_is_made_again(tmp_path):
    """Such as those of another version of Unicode: what they made of a text is not known any more."""
    async with indexing(tmp_path) as client:
        run = await new_run(client, await new_project(client))
        await write_paths(run, {"a": "alpha", "b": "beta"})
        assert await paths(run, "alpha") == ["a"]
    with opened(tmp_path) as file:
        file.execute("UPDATE meta SET value = 'unicode 1.0' WHERE key = 'search_rules'")
        file.execute("INSERT INTO search (rowid, body, path) VALUES (100, 'phantom', 'a')")
    async with indexing(tmp_path) as client:
        run.client = client
        await write_paths(run, {"a": "gamma"})
        assert [await paths(run, word) for word in ("alpha", "beta", "gamma")] == [[], ["b"], ["a"]]
    assert indexed_words(tmp_path) == {"a", "b", "beta", "gamma"}
