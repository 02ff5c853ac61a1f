"""PostgreSQL: locks between replicas, transactions that are run again, lost connections, notifications."""

import asyncio
import contextlib
import threading
import time

import psycopg
import pytest
import pytest_asyncio
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError
from turnwright_values.store import Durability

from sql_counter import counted_statements
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_store.edge.batch import LOCKS_MAX
from turnwright_store.edge.postgres import EVERYBODY, PAYLOAD_BYTES_MAX, PostgresDatabase, lock_key, lock_keys, payload
from turnwright_store.edge.postgres_link import ATTEMPTS_MAX, DatabaseUnreachableError, Server
from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.scopes import add_scope, bump_scope
from turnwright_store.sql.tables import scopes
from unit.store.test_database import occupied

pytestmark = pytest.mark.asyncio

FULL = Durability.FULL


@contextlib.asynccontextmanager
async def replica(url, connect_s=3.0, statement_s=10.0, lock_s=5.0, poll_s=60.0):
    one = PostgresDatabase(
        Server(url, connect_s, statement_s, lock_s), queue_max=1000, batch_max=64, readers=1, poll_s=poll_s
    )
    await one.start()
    try:
        yield one
    finally:
        await one.close()


@pytest_asyncio.fixture
async def database(postgres_url):
    async with replica(postgres_url) as one:
        yield one


@pytest.fixture
def admin(postgres, postgres_url):
    """A connection of somebody else to the same database."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def end_connections(admin, which="pid <> pg_backend_pid()"):
    admin.execute(
        f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND {which}"
    )


def keys(connection):
    return set(connection.execute(select(scopes.c.key)).scalars()) - {"global", "policy"}


def fail_with(code):
    return text(f"DO $$ BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '{code}'; END $$")


# ---- Locks


async def test_names_are_locked_once_and_in_one_order():
    names = ["run:a/1", "project:a", "global", "run:a/1"]
    assert lock_keys(names) == sorted({lock_key(name) for name in names}) == lock_keys(reversed(names))
    assert all(-(2**63) <= key < 2**63 for key in lock_keys(names))


async def test_a_later_holder_of_a_name_sees_what_the_earlier_one_did(postgres_url):
    """Two replicas read, then write what they read plus one: nothing is lost, and the clock never goes back."""
    seen = []

    def work(tx):
        count = len(keys(tx.connection))
        seen.append((count, tx.now_ms))
        return add_scope(tx, f"run:{count}")

    async with replica(postgres_url) as one, replica(postgres_url) as two:
        await asyncio.gather(*(database.write(work, FULL, {"run:x"}) for _ in range(20) for database in (one, two)))
        assert await one.read(keys) == {f"run:{number}" for number in range(40)}
    assert [moment for _, moment in sorted(seen)] == sorted(moment for _, moment in seen)


async def test_writes_that_share_no_name_do_not_wait_for_each_other(postgres_url):
    started, release = threading.Event(), threading.Event()

    def hold(tx):
        assert tx.now_ms
        started.set()
        release.wait(100)

    async with replica(postgres_url) as one, replica(postgres_url) as two:
        holding = asyncio.ensure_future(one.write(hold, FULL, {"run:1"}))
        await asyncio.to_thread(started.wait)
        await two.write(lambda tx: add_scope(tx, "run:2"), FULL, {"run:2"})
        waiting = asyncio.ensure_future(two.write(lambda tx: add_scope(tx, "run:1"), FULL, {"run:1"}))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        release.set()
        await asyncio.gather(holding, waiting)


async def test_one_more_name_is_locked_only_where_that_means_no_wait(database, admin):
    admin.execute(f"SELECT pg_advisory_lock({lock_key('run:taken')})")
    tried = await database.write(
        lambda tx: [tx.try_lock(name) for name in ("run:mine", "run:taken", "run:free")], FULL, {"run:mine"}
    )
    assert tried == [True, False, True]


async def test_a_name_that_is_held_too_long_fails_the_write(postgres_url, admin):
    admin.execute(f"SELECT pg_advisory_lock({lock_key('run:taken')})")
    async with replica(postgres_url, lock_s=0.1) as database:
        with pytest.raises(TurnwrightError) as caught:
            await database.write(lambda tx: add_scope(tx, "run:1"), FULL, {"run:taken"})
        assert (caught.value.reason, "55P03" in str(caught.value)) == (Reason.DATABASE_UNAVAILABLE, True)
        await database.write(lambda tx: add_scope(tx, "run:2"), FULL, {"run:free"})
        assert await database.read(keys) == {"run:2"}


async def test_a_name_that_is_held_too_long_fails_those_who_need_it_alone(postgres_url, admin):
    """They came together with others, and the others are written."""
    admin.execute(f"SELECT pg_advisory_lock({lock_key('run:taken')})")
    async with replica(postgres_url, lock_s=0.1) as database:
        first = database.write(lambda _tx: time.sleep(0.05), FULL, ())
        names = ["free", "taken", "free", "taken", "other"]
        together = [
            database.write(lambda tx, n=number: add_scope(tx, f"run:{n}"), FULL, {f"run:{name}"})
            for number, name in enumerate(names)
        ]
        _, *answers = await asyncio.gather(first, *together, return_exceptions=True)
        reasons = [getattr(answer, "reason", None) for answer in answers]
        assert reasons == [None, Reason.DATABASE_UNAVAILABLE, None, Reason.DATABASE_UNAVAILABLE, None]
        assert await database.read(keys) == {"run:0", "run:2", "run:4"}
        admin.execute("SELECT pg_advisory_unlock_all()")
        await database.write(lambda tx: add_scope(tx, "run:5"), FULL, {"run:taken"})


async def test_requests_that_lock_many_names_are_not_all_committed_together(database):
    """The locks of all clients lie in one table of the server, and it is not large."""
    task, release = await occupied(database)
    many = [
        asyncio.ensure_future(
            database.write(lambda tx, n=n: add_scope(tx, f"run:{n}"), FULL, {f"{n}/{k}" for k in range(LOCKS_MAX // 2)})
        )
        for n in range(5)
    ]
    await asyncio.sleep(0)
    with counted_statements() as counted:
        release.set()
        await asyncio.gather(task, *many)
    assert counted["COMMIT"] == 1 + 3


# ---- Transactions that are run again


@pytest.mark.parametrize("code", ["40001", "40P01"])
@pytest.mark.parametrize("beside", [0, 3])
async def test_a_transaction_that_met_another_one_is_run_again(database, code, beside):
    runs = []

    def work(tx):
        runs.append(1)
        add_scope(tx, "run:x")
        if len(runs) < ATTEMPTS_MAX:
            tx.connection.execute(fail_with(code))

    others = [database.write(lambda tx, n=n: add_scope(tx, f"run:{n}"), FULL, ()) for n in range(beside)]
    await asyncio.gather(*others, database.write(work, FULL, ()))
    assert len(runs) == ATTEMPTS_MAX
    assert await database.read(keys) == {"run:x", *(f"run:{n}" for n in range(beside))}


async def test_a_transaction_is_run_again_a_few_times_only(database):
    runs = []

    def work(tx):
        runs.append(1)
        tx.connection.execute(fail_with("40001"))

    with pytest.raises(TurnwrightError) as caught:
        await database.write(work, FULL, ())
    assert (caught.value.reason, len(runs)) == (Reason.DATABASE_UNAVAILABLE, ATTEMPTS_MAX)
    assert await database.write(lambda tx: add_scope(tx, "run:y"), FULL, ()) > 0


async def test_two_replicas_that_wait_for_each_other_both_succeed(postgres_url):
    """Names that were forgotten: PostgreSQL ends one of the two, which is then run again."""
    both = threading.Barrier(2, timeout=60)

    def work(first, second):
        met = []

        def run(tx):
            bump_scope(tx, first)
            if not met:
                met.append(1)
                both.wait()
            bump_scope(tx, second)

        return run

    async with replica(postgres_url) as one, replica(postgres_url) as two:
        a, b = [await one.write(lambda tx, n=n: add_scope(tx, f"run:{n}"), FULL, ()) for n in range(2)]
        await asyncio.gather(one.write(work(a, b), FULL, ()), two.write(work(b, a), FULL, ()))
        revisions = await one.read(
            lambda connection: list(
                connection.execute(select(scopes.c.revision).where(scopes.c.id.in_([a, b]))).scalars()
            )
        )
        assert revisions == [2, 2]


async def test_a_statement_that_takes_too_long_fails_its_own_request_only(postgres_url):
    async with replica(postgres_url, statement_s=1.0) as database:
        slow = database.write(lambda tx: tx.connection.execute(text("SELECT pg_sleep(9)")), FULL, ())
        first = database.write(lambda _tx: time.sleep(0.05), FULL, ())
        good = database.write(lambda tx: add_scope(tx, "run:y"), FULL, ())
        answers = await asyncio.gather(first, slow, good, return_exceptions=True)
        assert answers[1].reason is Reason.DATABASE_UNAVAILABLE
        assert await database.read(keys) == {"run:y"}
        with pytest.raises(TurnwrightError) as caught:
            await database.read(lambda connection: connection.execute(text("SELECT pg_sleep(9)")))
        assert caught.value.reason is Reason.DATABASE_UNAVAILABLE
        assert await database.read(keys) == {"run:y"}


async def test_a_request_that_goes_on_after_a_failed_statement_is_not_acknowledged(database):
    def work(tx):
        add_scope(tx, "run:x")
        with contextlib.suppress(Exception):
            tx.connection.execute(text("SELECT 1/0"))

    with pytest.raises(DBAPIError, match="not committed"):
        await database.write(work, FULL, ())
    assert await database.read(keys) == set()


async def test_every_commit_is_synchronous(postgres_url, postgres):
    def synchronous(connection):
        return connection.execute(text("SHOW synchronous_commit")).scalar_one()

    name = postgres_url.rpartition("/")[2]
    found = {}
    for said in ("off", "on", "remote_apply"):
        postgres.server.execute(f"ALTER DATABASE {name} SET synchronous_commit = {said}")
        async with replica(postgres_url) as database:
            found[said] = await database.write(lambda tx: synchronous(tx.connection), Durability.NORMAL, ())
    assert found == {"off": "on", "on": "on", "remote_apply": "remote_apply"}


# ---- Lost connections


async def test_a_write_whose_connection_is_lost_before_the_commit_is_run_again(database, admin):
    runs = []

    def work(tx):
        runs.append(1)
        add_scope(tx, "run:x")
        if len(runs) == 1:
            end_connections(admin)
        add_scope(tx, "run:y")

    await database.write(work, FULL, ())
    assert len(runs) == 2
    assert await database.read(keys) == {"run:x", "run:y"}


async def test_a_connection_that_is_lost_during_the_commit_leaves_it_open_what_happened(database, admin):
    """The server may have committed: only the request id can tell, so the work is not run again."""
    admin.execute(
        """
        CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(5); RETURN NULL; END $$
        """
    )
    admin.execute(
        "CREATE CONSTRAINT TRIGGER leave AFTER INSERT ON scopes DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW WHEN (NEW.key = 'run:x') EXECUTE FUNCTION leave()"
    )
    runs = []

    def work(tx):
        runs.append(1)
        add_scope(tx, "run:x")

    with pytest.raises(TurnwrightError, match="same request id") as caught:
        await database.write(work, FULL, ())
    assert (caught.value.reason, len(runs)) == (Reason.DATABASE_UNAVAILABLE, 1)
    await database.write(lambda tx: add_scope(tx, "run:y"), FULL, ())
    assert await database.read(keys) == {"run:y"}


async def test_a_connection_that_is_lost_behind_the_commit_changes_nothing(database, admin, monkeypatch):
    """What was acknowledged by the server is not run again."""
    leave, runs = psycopg.Pipeline.__exit__, []

    def lose(pipeline, *raised):
        end_connections(admin)
        return leave(pipeline, *raised)

    def work(tx):
        runs.append(1)
        return add_scope(tx, "run:x")

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Pipeline, "__exit__", lose)
        assert await database.write(work, FULL, ()) > 0
    assert (len(runs), await database.read(keys)) == (1, {"run:x"})
    await database.write(lambda tx: add_scope(tx, "run:y"), FULL, ())
    assert await database.read(keys) == {"run:x", "run:y"}


async def test_a_server_that_is_the_primary_no_more_is_left(database):
    """The URL may lead to another one, and this one will not take the write."""
    servers = []

    def work(tx):
        servers.append(tx.connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
        add_scope(tx, "run:x")
        if len(servers) == 1:
            tx.connection.execute(fail_with("25006"))

    await database.write(work, FULL, ())
    assert len(set(servers)) == 2
    assert await database.read(keys) == {"run:x"}


async def test_a_server_that_says_nothing_is_lost(postgres_url):
    """Whoever waited is told, and its connection is closed: nothing more comes of it."""

    def stop(connection):
        for statement in ("SET LOCAL statement_timeout = 0", "SELECT pg_sleep(100)"):
            connection.execute(text(statement))

    async with replica(postgres_url, statement_s=0.1, poll_s=0.05) as database:
        for asked in (
            database.read(stop),
            database.write(lambda tx: stop(tx.connection), FULL, ()),
        ):
            with pytest.raises(TurnwrightError) as caught:
                await asked
            assert caught.value.reason is Reason.DATABASE_UNAVAILABLE


async def test_a_reader_comes_back(database, admin):
    runs = []

    def query(connection):
        runs.append(1)
        if len(runs) == 1:
            end_connections(admin)
        return keys(connection)

    assert await database.read(query) == set()
    assert len(runs) == 2


@contextlib.contextmanager
def away(postgres, admin):
    """The database takes no connections."""
    name = admin.info.dbname
    postgres.server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    end_connections(admin)
    yield
    postgres.server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


async def test_a_short_absence_of_the_server_is_waited_out(postgres_url, postgres, admin):
    async with replica(postgres_url, connect_s=60.0) as database:
        with away(postgres, admin):
            waiting = [
                asyncio.ensure_future(database.write(lambda tx: add_scope(tx, "run:x"), FULL, ())),
                asyncio.ensure_future(database.read(keys)),
            ]
            done, _ = await asyncio.wait(waiting, timeout=0.3)
            assert not done
        await asyncio.gather(*waiting)
        assert await database.read(keys) == {"run:x"}


async def test_a_long_absence_of_the_server_is_reported(postgres_url, postgres, admin):
    async with replica(postgres_url, connect_s=1.0) as database:
        with away(postgres, admin):
            for _ in range(2):
                calls = (database.write(lambda tx: add_scope(tx, "run:x"), FULL, ()), database.read(keys))
                answers = await asyncio.gather(*calls, return_exceptions=True)
                assert [answer.reason for answer in answers] == [Reason.DATABASE_UNAVAILABLE] * 2
        await database.write(lambda tx: add_scope(tx, "run:y"), FULL, ())
        assert await database.read(keys) == {"run:y"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://who:s%40cret@127.0.0.1:1/none",
        "postgresql+psycopg://who:s%40cret@127.0.0.1:1/none",
        "postgresql://who:s%40cret@127.0.0.1:1,localhost:2/none",
    ],
)
async def test_a_server_that_is_not_there_at_the_start_is_named_without_its_secrets(url):
    with pytest.raises(DatabaseUnreachableError, match=r"127\.0\.0\.1:1.*/none cannot be reached") as caught:
        async with replica(url):
            pass
    assert "s@cret" not in str(caught.value)
    assert "s%40cret" not in str(caught.value)


async def test_a_start_does_not_wait_for_a_database_that_the_server_does_not_have(postgres_url):
    server = Server(f"{postgres_url}_none", 3.0, 10.0, 5.0, is_awaited=True)
    with pytest.raises(DatabaseUnreachableError, match="_none"):
        await PostgresDatabase(server, queue_max=1, batch_max=1, readers=1, poll_s=60).start()


# ---- Notifications


async def test_a_notification_names_the_scopes_as_long_as_they_fit():
    assert payload({3, 1, 20}) == "1,3,20"
    many = set(range(10**9, 10**9 + 1000))
    assert payload(many) == EVERYBODY
    assert len(payload(set(list(many)[:700]))) <= PAYLOAD_BYTES_MAX


async def woken(subscription, within_s=60.0):
    try:
        await asyncio.wait_for(subscription.woken.wait(), within_s)
    except TimeoutError:
        return False
    subscription.woken.clear()
    return True


async def test_a_commit_wakes_the_watchers_of_other_replicas(postgres_url):
    async with replica(postgres_url) as one, replica(postgres_url) as two:
        a, b = [await one.write(lambda tx, n=n: add_scope(tx, f"run:{n}"), FULL, ()) for n in range(2)]
        mine, theirs = two.subscribe([a]), two.subscribe([b])
        await one.write(lambda tx: bump_scope(tx, a), FULL, ())
        assert await woken(mine)
        assert not theirs.woken.is_set()


async def test_more_scopes_than_a_notification_names_wake_everybody(postgres_url):
    async with replica(postgres_url) as one, replica(postgres_url) as two:
        watcher = two.subscribe([1])

        def work(tx):
            tx.revisions_before.update(dict.fromkeys(range(10**9, 10**9 + 1000), 1))

        await one.write(work, FULL, ())
        assert await woken(watcher)


async def test_everybody_is_woken_after_the_listening_was_interrupted(database, admin):
    watcher = database.subscribe([1])
    end_connections(admin, "query LIKE 'LISTEN%'")
    assert await woken(watcher)
    admin.execute("NOTIFY turnwright_changes, '1'")
    assert await woken(watcher)


async def test_a_notification_of_strangers_does_no_harm(database, admin):
    watcher = database.subscribe([1])
    admin.execute("NOTIFY turnwright_changes, 'what is this'")
    admin.execute("NOTIFY turnwright_changes, '1'")
    assert await woken(watcher)


async def test_watchers_look_for_themselves_now_and_then(postgres_url):
    async with replica(postgres_url, poll_s=0.1) as database:
        watcher = database.subscribe([1])
        assert [await woken(watcher) for _ in range(2)] == [True, True]


# ---- Statements on their way


async def test_a_text_with_nul_is_refused_before_it_is_cut(database):
    with pytest.raises(TurnwrightError) as caught:
        await database.write(lambda tx: add_scope(tx, "run:a\0b"), FULL, ())
    assert caught.value.reason is Reason.INVALID_FIELD
    assert await database.read(keys) == set()


async def test_what_nobody_waits_for_fails_its_own_request_all_the_same(database):
    """Rows that are only stored are not waited for; whose they were is told."""
    add = insertion(scopes)
    rows = [{"key": f"run:{number}"} for number in range(2500)]
    twice = [{"key": "run:x"}, {"key": "run:x"}]
    await database.write(lambda tx: tx.connection.execute(add, rows), FULL, ())
    answers = await asyncio.gather(
        *(database.write(lambda tx, n=n: tx.connection.execute(add, {"key": n}), FULL, ()) for n in ("a", "b")),
        database.write(lambda tx: tx.connection.execute(add, twice), FULL, ()),
        return_exceptions=True,
    )
    assert [isinstance(answer, Exception) for answer in answers] == [False, False, True]
    assert "UniqueViolation" in str(answers[2])
    with pytest.raises(DBAPIError, match="UniqueViolation"):
        await database.write(lambda tx: tx.connection.execute(add, {"key": "a"}), FULL, ())
    assert {"a", "b"} | {row["key"] for row in rows} == await database.read(keys)
