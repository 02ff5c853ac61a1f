"""Nothing of a feed is missed or repeated: by slow readers, by those that come and go, across restarts."""

import asyncio
import contextlib
import random

import pytest

from contract.store.harness import ARCHIVED, STREAMING, Client, append, new_project, new_run, remove, set_, start_store
from contract.store.watcher import Watcher, plain
from turnwright_core.errors import TurnwrightError

pytestmark = pytest.mark.asyncio


async def test_a_change_of_many_rows_is_of_one_moment_however_slow_the_reader(client, run):
    """Rows are read in pieces; what is written between two of them is told afterwards, and told whole."""
    start = (await run.view()).cursor
    paths = [f"known://{number:04}" for number in range(1500)]
    await run.write(*(set_(path, "old") for path in paths), set_("known://gone", "old"))
    first = (await run.view()).cursor
    watcher = Watcher(run, after=start)
    await watcher.next()
    await run.write(*(set_(path, "new") for path in paths[::2]), remove("known://gone"), *map(remove, paths[1::4]))
    while watcher.messages[-1].cursor != first:
        await watcher.next()
    assert {message.cursor.run_revision for message in watcher.messages[:-1]} == {start.run_revision}
    assert await watcher.is_at(first)
    assert {entry.body for entry in watcher.known.values()} == {"old"}
    last = (await run.view()).cursor
    await watcher.until(last)
    assert await watcher.is_at(last)
    await watcher.close()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
async def test_nothing_is_missed_or_repeated_by_a_reader_that_comes_and_goes(tmp_path, seed):
    """Reconnects at whatever cursor it has, pauses, a restart of the store: every cursor stands for one view."""
    server = await start_store(tmp_path)
    client = Client(server.address)
    project = await new_project(client)
    run, other = await new_run(client, project, "r"), await new_run(client, project, "other")
    chance = random.Random(seed)
    reader = Reader(run, chance, (await run.view()).cursor)
    for _ in range(2):
        writing = asyncio.create_task(write_at_random(client, [run, run, other], chance, 40))
        while not writing.done():
            await reader.read()
        await writing
        await reader.close()
        await server.stop()
        server = await start_store(tmp_path)
    final = await run.view()
    while reader.cursor != final.cursor:
        await reader.read()
    known = {path: plain(entry) for path, entry in reader.known.items()}
    assert known == {entry.path: plain(entry) for entry in final.entries if entry.path != "run://r"}
    assert len(reader.told) == len(set(reader.told))
    await reader.close()
    await client.close()
    await server.stop()


class Reader:
    """Follows a run, breaks off where chance will have it, and begins again at the last cursor."""

    def __init__(self, run, chance, cursor):
        self.run, self.chance, self.cursor = run, chance, cursor
        self.known, self.told = {}, []
        self.watcher = None

    async def read(self):
        if self.watcher is None:
            self.watcher = Watcher(self.run, after=self.cursor)
            self.watcher.known = dict(self.known)
            self.fresh = []
        message = await self.watcher.next()
        self.fresh += [(entry.path, entry.revision, entry.body, entry.visibility) for entry in message.entries]
        if message.cursor != self.cursor:
            self.cursor, self.known = message.cursor, dict(self.watcher.known)
            self.told += self.fresh
            self.fresh = []
            if self.chance.random() < 0.3:
                assert await self.watcher.is_at(self.cursor)
        if self.chance.random() < 0.2:
            await asyncio.sleep(self.chance.random() / 50)
        if self.chance.random() < 0.3:
            await self.close()

    async def close(self):
        if self.watcher:
            await self.watcher.close()
        self.watcher = None


async def write_at_random(client, runs, chance, steps):
    stream = "sh://turn_1/x_1"
    for step in range(steps):
        writes = [set_(stream, str(step), state=STREAMING)] if step % 10 == 0 else []
        for path in chance.sample(["known://a", "known://b", "known://c", "src/a.py", "src/b.py"], 2):
            text = str(step)
            writes += [chance.choice([set_(path, text), remove(path), set_(path, text, visibility=ARCHIVED)])]
        run = chance.choice(runs)
        await client.call("WriteEntries", **run.address, writes=writes)
        if run is runs[0] and step % 10:
            with contextlib.suppress(TurnwrightError):
                # The other run began the stream, this one does not see it yet.
                await client.call("WriteEntries", **run.address, writes=[append(stream, f"+{step}")])
