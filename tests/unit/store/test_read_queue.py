"""One connection is used by one at a time, whoever has stopped waiting for it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from turnwright_store.edge.database import SqliteDatabase


@pytest.mark.asyncio
async def test_a_connection_whose_caller_has_left_is_free_when_its_thread_is_done(tmp_path):
    database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=9, batch_max=9, readers=1)
    await database.start()
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def slow(_connection):
        begun.set()
        may_end.wait(100)
        ended.append(time.monotonic())

    waiting = asyncio.create_task(database.read(slow))
    await asyncio.to_thread(begun.wait, 100)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    inline = asyncio.create_task(database.read(lambda _: (list(ended), "read"), inline=True))
    await asyncio.sleep(0.05)
    assert not inline.done()
    may_end.set()
    seen, read = await inline
    assert (len(seen), read) == (1, "read")
    await database.close()
