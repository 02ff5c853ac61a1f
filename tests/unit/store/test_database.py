"""The database: group commit, durability classes, bounds, wake-ups, snapshots; on SQLite and on PostgreSQL."""

import asyncio
import sqlite3
import threading

import pytest
import pytest_asyncio
from sqlalchemy import select, text
from turnwright_values.store import Durability

from sql_counter import counted_statements
from turnwright_core.errors import Reason, TurnwrightError, UnavailableError
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.edge.postgres import PostgresDatabase
from turnwright_store.edge.postgres_link import Server
from turnwright_store.edge.sqlite_codes import DatabaseUnusableError
from turnwright_store.sql.scopes import add_scope, bump_scope
from turnwright_store.sql.tables import scopes

pytestmark = pytest.mark.asyncio


SQLITE_ONLY = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request):
    return request.param


@pytest.fixture
def closed(kind, request, tmp_path):
    """A database that is not started yet."""
    if kind == "sqlite":
        return SqliteDatabase(tmp_path / "x.db", lambda: 1, queue_max=100, batch_max=16, readers=2)
    server = Server(request.getfixturevalue("postgres_url"), 5.0, 10.0, 5.0)
    return PostgresDatabase(server, queue_max=100, batch_max=16, readers=2, poll_s=60.0)


@pytest_asyncio.fixture
async def database(closed):
    await closed.start()
    yield closed
    await closed.close()


def keys(connection):
    return set(connection.execute(select(scopes.c.key)).scalars()) - {"global", "policy"}


async def occupied(database):
    """Keep the writer busy until the returned event is set."""
    started, release = threading.Event(), threading.Event()

    def hold(_tx):
        started.set()
        release.wait()

    task = asyncio.ensure_future(database.write(hold, Durability.NORMAL, ()))
    await asyncio.to_thread(started.wait)
    return task, release


@pytest.mark.parametrize("mapped", [0, 4])
async def test_the_file_is_mapped_into_memory_as_far_as_is_said(tmp_path, mapped):
    """RU296: by the connection that writes and by those that read."""
    database = SqliteDatabase(tmp_path / "x.db", lambda: 1, queue_max=100, batch_max=16, readers=1, mmap_mb=mapped)
    await database.start()
    sizes = [
        await asked(lambda connection: connection.execute(text("PRAGMA mmap_size"), {}).scalar())
        for asked in (
            database.read,
            lambda query: database.write(lambda tx: query(tx.connection), Durability.NORMAL, ()),
        )
    ]
    await database.close()
    assert sizes == [mapped * 1024 * 1024] * 2


async def test_requests_that_wait_together_share_a_transaction(database):
    task, release = await occupied(database)
    waiting = [
        asyncio.ensure_future(database.write(lambda tx, n=n: add_scope(tx, f"run:{n}"), Durability.NORMAL, ()))
        for n in range(16)
    ]
    await asyncio.sleep(0)
    with counted_statements() as counted:
        release.set()
        ids = await asyncio.gather(*waiting)
        await task
    assert sorted(ids) == ids
    assert (counted["BEGIN"], counted["COMMIT"], counted["SAVEPOINT"]) == (1, 2, 16)


async def test_a_batch_has_a_largest_size(database):
    task, release = await occupied(database)
    waiting = [asyncio.ensure_future(database.write(lambda _tx: None, Durability.NORMAL, ())) for _ in range(33)]
    await asyncio.sleep(0)
    with counted_statements() as counted:
        release.set()
        await asyncio.gather(task, *waiting)
    assert counted["COMMIT"] == 1 + 3


@pytest.mark.parametrize("error", [ValueError("mine"), KeyError("mine"), AssertionError("mine")])
async def test_an_error_reaches_its_own_caller_and_undoes_its_own_changes(database, error):
    def fail(tx):
        add_scope(tx, "run:bad")
        raise error

    with pytest.raises(type(error)) as alone:
        await database.write(fail, Durability.NORMAL, ())
    assert alone.value is error
    task, release = await occupied(database)
    waiting = [
        asyncio.ensure_future(database.write(work, Durability.NORMAL, ()))
        for work in (lambda tx: add_scope(tx, "run:1"), fail, lambda tx: add_scope(tx, "run:2"))
    ]
    await asyncio.sleep(0)
    release.set()
    answers = await asyncio.gather(task, *waiting, return_exceptions=True)
    assert answers[2] is error
    assert await database.read(keys) == {"run:1", "run:2"}


async def test_a_statement_that_the_database_refuses_leaves_the_others_alone(database):
    """A failed constraint undoes its statement only; the savepoint undoes the rest of the request."""

    def twice(tx):
        add_scope(tx, "run:x")
        add_scope(tx, "run:x")

    task, release = await occupied(database)
    bad = asyncio.ensure_future(database.write(twice, Durability.NORMAL, ()))
    good = asyncio.ensure_future(database.write(lambda tx: add_scope(tx, "run:y"), Durability.NORMAL, ()))
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(task, good)
    assert "unique" in str((await asyncio.gather(bad, return_exceptions=True))[0]).lower()
    assert await database.read(keys) == {"run:y"}


@SQLITE_ONLY
async def test_a_transaction_that_is_lost_fails_its_whole_batch(database):
    """Where SQLite gives up the transaction (a full disk), nobody is told that he was written."""

    def lose(tx):
        tx.connection.exec_driver_sql("ROLLBACK")
        raise OSError("disk full")

    task, release = await occupied(database)
    works = (lambda tx: add_scope(tx, "run:1"), lose, lambda tx: add_scope(tx, "run:2"))
    waiting = [asyncio.ensure_future(database.write(work, Durability.NORMAL, ())) for work in works]
    await asyncio.sleep(0)
    release.set()
    await task
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [OSError] * 3
    assert await database.read(keys) == set()
    assert await database.write(lambda tx: add_scope(tx, "run:3"), Durability.NORMAL, ()) > 0


@SQLITE_ONLY
async def test_synchronous_follows_the_strongest_durability_of_a_batch(database):
    async def synchronous(*durabilities):
        task, release = await occupied(database)
        waiting = [
            asyncio.ensure_future(
                database.write(
                    lambda tx: tx.connection.execute(text("PRAGMA synchronous")).scalar_one(), durability, ()
                )
            )
            for durability in durabilities
        ]
        await asyncio.sleep(0)
        release.set()
        await task
        return set(await asyncio.gather(*waiting))

    assert await synchronous(Durability.NORMAL, Durability.NORMAL) == {1}
    assert await synchronous(Durability.NORMAL, Durability.FULL) == {2}
    assert await synchronous(Durability.NORMAL) == {1}


@SQLITE_ONLY
@pytest.mark.parametrize("together", [1, 3])
async def test_a_full_disk_is_reported_as_what_passes_and_nothing_of_the_batch_is_written(database, together):
    """SQLite's own limit of pages stands for the disk: what it raises is the same."""

    async def room(pages):
        limit = text(f"PRAGMA max_page_count = {pages}")
        await database.write(lambda tx: tx.connection.execute(limit, {}).scalar(), Durability.NORMAL, ())

    def write(number):
        work = lambda tx: add_scope(tx, f"run:{number}" + "x" * 100_000)  # noqa: E731 - one for each request
        return database.write(work, Durability.FULL, ())

    await room(1)
    refused = await asyncio.gather(*map(write, range(together)), return_exceptions=True)
    assert [type(error) for error in refused] == [UnavailableError] * together
    assert {error.reason for error in refused} == {Reason.DATABASE_UNAVAILABLE}
    assert "disk is full" in refused[0].message
    assert await database.read(keys) == set()
    await room(1_000_000)
    await asyncio.gather(*map(write, range(together)))
    assert len(await database.read(keys)) == together


async def test_a_file_that_is_no_database_is_said_to_be_none(tmp_path):
    file = tmp_path / "x.db"
    file.write_bytes(b"somebody's notes" * 1000)
    database = SqliteDatabase(file, lambda: 1, queue_max=1, batch_max=1, readers=1)
    with pytest.raises(
        DatabaseUnusableError, match=r"x\.db cannot be used as the database .*--db, or restore a backup"
    ):
        await database.start()
    assert file.read_bytes() == b"somebody's notes" * 1000


@pytest.mark.parametrize("is_missing", [False, True], ids=["empty", "missing"])
@SQLITE_ONLY
async def test_a_log_whose_file_is_gone_is_kept_and_refused(database, tmp_path, is_missing):
    await database.write(lambda tx: add_scope(tx, "run:1"), Durability.FULL, ())
    file, log = tmp_path / "y.db", tmp_path / "y.db-wal"
    left = (tmp_path / "x.db-wal").read_bytes()
    log.write_bytes(left)
    if not is_missing:
        file.touch()
    with pytest.raises(DatabaseUnusableError, match=r"y\.db-wal is not: put the file back"):
        await SqliteDatabase(file, lambda: 1, queue_max=1, batch_max=1, readers=1).start()
    assert log.read_bytes() == left != b""


@SQLITE_ONLY
async def test_a_file_that_somebody_else_has_locked_does_not_stop_the_event_loop(database, tmp_path):
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(database.write(lambda tx: add_scope(tx, "run:1"), Durability.NORMAL, ()))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    other.execute("ROLLBACK")
    other.close()
    assert await waiting > 0


@SQLITE_ONLY
async def test_writes_leave_no_log_that_grows(database, tmp_path):
    for number in range(3000):
        await database.write(lambda tx, n=number: add_scope(tx, f"run:{n}" + "x" * 2000), Durability.NORMAL, ())
    assert (tmp_path / "x.db-wal").stat().st_size < 16 * 1024 * 1024


async def test_the_writers_queue_is_bounded(database):
    task, release = await occupied(database)
    waiting = [asyncio.ensure_future(database.write(lambda _tx: None, Durability.NORMAL, ())) for _ in range(100)]
    await asyncio.sleep(0)
    with pytest.raises(TurnwrightError) as caught:
        await database.write(lambda _tx: None, Durability.NORMAL, ())
    assert (caught.value.reason, caught.value.metadata) == (Reason.QUEUE_FULL, {"queue": "writer", "limit": "100"})
    release.set()
    await asyncio.gather(task, *waiting)


async def test_a_reader_sees_one_moment_and_waits_for_no_writer(database):
    task, release = await occupied(database)
    assert await database.read(keys) == set()
    release.set()
    await task
    entered, go_on = asyncio.Event(), asyncio.Event()

    def twice(connection):
        first = keys(connection)
        entered.set()
        connection.connection.dbapi_connection.run_async(lambda _: go_on.wait())
        return first, keys(connection)

    reading = asyncio.ensure_future(database.read(twice))
    await entered.wait()
    await database.write(lambda tx: add_scope(tx, "run:1"), Durability.NORMAL, ())
    go_on.set()
    assert await reading == (set(), set())
    assert await database.read(keys) == {"run:1"}


async def test_readers_cannot_write(database):
    with pytest.raises(Exception, match=r"(?i)read-?only"):
        await database.read(lambda connection: connection.execute(text("DELETE FROM scopes")))
    assert await database.read(keys) == set()


async def test_a_caller_that_goes_away_does_not_disturb_the_others(database):
    task, release = await occupied(database)
    gone = asyncio.ensure_future(database.write(lambda tx: add_scope(tx, "run:1"), Durability.NORMAL, ()))
    stays = asyncio.ensure_future(database.write(lambda tx: add_scope(tx, "run:2"), Durability.NORMAL, ()))
    await asyncio.sleep(0)
    gone.cancel()
    release.set()
    await asyncio.gather(task, stays)
    assert await database.read(keys) == {"run:1", "run:2"}


async def test_a_commit_wakes_who_watches_its_scopes(database):
    one, two = [await database.write(lambda tx, n=n: add_scope(tx, f"run:{n}"), Durability.NORMAL, ()) for n in (1, 2)]
    mine, theirs = database.subscribe([one]), database.subscribe([two])
    await database.write(lambda tx: bump_scope(tx, one), Durability.NORMAL, ())
    assert (mine.woken.is_set(), theirs.woken.is_set()) == (True, False)
    mine.woken.clear()
    mine.close()
    theirs.close()
    await database.write(lambda tx: bump_scope(tx, one), Durability.NORMAL, ())
    assert not mine.woken.is_set()


async def test_a_failed_request_wakes_nobody(database):
    scope = await database.write(lambda tx: add_scope(tx, "run:1"), Durability.NORMAL, ())
    mine = database.subscribe([scope])

    def fail(tx):
        bump_scope(tx, scope)
        raise ValueError

    with pytest.raises(ValueError):
        await database.write(fail, Durability.NORMAL, ())
    assert not mine.woken.is_set()
    mine.close()


async def test_a_transaction_raises_a_scope_once(database):
    def work(tx):
        scope = add_scope(tx, "run:1")
        return [bump_scope(tx, scope, positions) for positions in (0, 3, 2)]

    assert await database.write(work, Durability.NORMAL, ()) == [(1, 0), (1, 3), (1, 5)]


async def test_closing_writes_what_waits(closed):
    database = closed
    await database.start()
    waiting = [
        asyncio.ensure_future(database.write(lambda tx, n=n: add_scope(tx, f"run:{n}"), Durability.NORMAL, ()))
        for n in range(10)
    ]
    await asyncio.sleep(0)
    await database.close()
    assert len(await asyncio.gather(*waiting)) == 10
    with pytest.raises(TurnwrightError) as caught:
        await database.write(lambda _tx: None, Durability.NORMAL, ())
    assert caught.value.reason is Reason.DRAINING
