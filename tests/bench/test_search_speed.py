"""What indexing and searching cost: 5,000 files of 3 KB."""

import asyncio
import os
import random
import statistics
import time

import pytest

from contract.store.harness import Client, new_project, new_run, set_, start_store

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

FILES, FILE_BYTES, A_REQUEST = 5_000, 3_000, 500
SEARCHES = 200


def bodies(source):
    """Texts of words that are distributed as those of a language: few are common, many are rare."""
    words = [f"{source.choice('bcdfghklmnprst')}{source.choice('aeiou')}{number:x}" for number in range(20_000)]
    weights = [1 / (place + 1) for place in range(len(words))]
    for _ in range(FILES):
        yield " ".join(source.choices(words, weights, k=FILE_BYTES // 6))[:FILE_BYTES], words


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_indexing_and_searching(tmp_path, kind, monkeypatch, request):
    if kind == "postgresql":
        if not os.environ.get("TURNWRIGHT_TEST_POSTGRES"):
            pytest.skip("TURNWRIGHT_TEST_POSTGRES is not set: `make postgres` starts a server and says what to export")
        monkeypatch.setenv("TURNWRIGHT_DB", request.getfixturevalue("postgres_url"))
    server = await start_store(tmp_path, search_index_s=0.05)
    client = Client(server.address)
    run = await new_run(client, await new_project(client))
    texts = list(bodies(random.Random(7)))
    for start in range(0, FILES, A_REQUEST):
        writes = [set_(f"src/f{start + place}.txt", text) for place, (text, _) in enumerate(texts[start:][:A_REQUEST])]
        await client.call("WriteEntries", **run.address, writes=writes)
    begin = time.perf_counter()
    while True:
        found = await client.call("SearchEntries", project=run.project, query="x")
        if found.indexed_revision == found.revision:
            break
        await asyncio.sleep(0.05)
    indexed_s = time.perf_counter() - begin
    words = texts[0][1]
    spent = {}
    for name, low, high in (("common", 0, 20), ("usual", 20, 1000), ("rare", 1000, len(words))):
        taken = []
        for number in range(SEARCHES):
            query = " ".join(random.Random(number).sample(words[low:high], 2))
            begin = time.perf_counter()
            await client.call("SearchEntries", project=run.project, query=query)
            taken.append((time.perf_counter() - begin) * 1000)
        spent[name] = taken
    await client.close()
    await server.stop()
    print(f"\n[{kind}] after the last write {FILES} files of {FILE_BYTES} B were indexed within {indexed_s:.1f} s")
    for name, taken in spent.items():
        p99 = sorted(taken)[int(len(taken) * 0.99)]
        print(f"[{kind}] search of two {name} words: p50 {statistics.median(taken):.1f} ms, p99 {p99:.1f} ms")
    assert indexed_s < 120
