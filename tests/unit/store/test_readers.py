"""The connections for reading: how many there are, and what becomes of one whose caller has left."""

import asyncio
import logging
import threading

import pytest
from sqlalchemy import text

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_store.edge.database import SqliteDatabase

pytestmark = pytest.mark.asyncio


def waiting_for(event):
    """A query that waits for an event when it has begun."""

    def query(connection):
        answer = connection.execute(text("SELECT 1")).scalar_one()
        connection.connection.dbapi_connection.run_async(lambda _: event.wait())
        return answer

    return query


async def test_who_waits_for_a_connection_gets_the_one_of_a_caller_that_has_left(tmp_path):
    database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=9, batch_max=9, readers=1)
    await database.start()
    leaving = asyncio.create_task(database.read(waiting_for(asyncio.Event())))
    next_one = asyncio.create_task(database.read(lambda _: "read"))
    await asyncio.sleep(0.05)
    assert not next_one.done()
    leaving.cancel()
    assert await next_one == "read"
    await asyncio.gather(leaving, return_exceptions=True)
    assert leaving.cancelled()
    await database.close()


async def test_as_many_wait_for_a_connection_as_the_queue_holds(tmp_path):
    database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=2, batch_max=9, readers=2)
    await database.start()
    go_on = asyncio.Event()
    reading = [asyncio.create_task(database.read(waiting_for(go_on))) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(TurnwrightError) as caught:
        await database.read(lambda _: "read")
    assert (caught.value.reason, caught.value.metadata) == (Reason.QUEUE_FULL, {"queue": "readers", "limit": "2"})
    go_on.set()
    assert await asyncio.gather(*reading) == [1] * 4
    await database.close()


async def test_a_file_that_is_gone_is_not_made_again_by_who_reads(tmp_path):
    database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=2, batch_max=9, readers=1)
    await database.start()
    (tmp_path / "x.db").rename(tmp_path / "y.db")
    with pytest.raises(TurnwrightError) as caught:
        await database.read(lambda connection: connection.execute(text("SELECT 1")).scalar_one())
    assert caught.value.reason is Reason.DATABASE_UNAVAILABLE
    assert not (tmp_path / "x.db").exists()
    await database.close()


async def test_closing_waits_for_what_is_being_read(tmp_path):
    database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=2, batch_max=9, readers=1)
    await database.start()
    go_on = asyncio.Event()
    reading = asyncio.create_task(database.read(waiting_for(go_on)))
    await asyncio.sleep(0)
    closing = asyncio.create_task(database.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    with pytest.raises(TurnwrightError) as caught:
        await database.read(lambda _: "read")
    assert caught.value.reason is Reason.DRAINING
    go_on.set()
    assert await reading == 1
    await closing


class Held(logging.Handler):
    """Stops a connection's thread before it calls a function whose name has a text in it."""

    def __init__(self, name):
        super().__init__()
        self._name = name
        self.is_held = threading.Event()
        self.go_on = threading.Event()

    def emit(self, record):
        if record.msg.startswith("executing") and self._name in record.getMessage():
            self.is_held.set()
            self.go_on.wait()


@pytest.fixture
def hold(monkeypatch, caplog):
    def hold(name):
        held = Held(name)
        caplog.set_level(logging.DEBUG, "aiosqlite")
        monkeypatch.setattr(logging.getLogger("aiosqlite"), "handlers", [held])
        return held

    return hold


async def test_who_waits_for_a_connection_opens_one_when_the_caller_that_was_opening_it_has_left(tmp_path, hold):
    database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=9, batch_max=9, readers=1)
    await database.start()
    held = hold("connector")
    leaving = asyncio.create_task(database.read(lambda _: "left"))
    next_one = asyncio.create_task(database.read(lambda _: "read"))
    await asyncio.to_thread(held.is_held.wait)
    leaving.cancel()
    held.go_on.set()
    assert await asyncio.wait_for(next_one, 60) == "read"
    await asyncio.gather(leaving, return_exceptions=True)
    assert leaving.cancelled()
    await database.close()


async def test_closing_waits_for_the_thread_of_a_connection_that_failed_to_open(tmp_path, hold):
    """It calls the event loop, which is closed after the database."""
    held = hold("stop")
    database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=2, batch_max=9, readers=1)
    await database.start()
    (tmp_path / "x.db").rename(tmp_path / "y.db")
    with pytest.raises(TurnwrightError):
        await database.read(lambda connection: connection.execute(text("SELECT 1")).scalar_one())
    closing = asyncio.create_task(database.close())
    done, _ = await asyncio.wait({closing}, timeout=0.5)
    held.go_on.set()
    await closing
    assert not done
