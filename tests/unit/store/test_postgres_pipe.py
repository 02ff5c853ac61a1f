"""Statements on their way to PostgreSQL: values on the wire, many rows at once, failures of what nobody waited for."""

import asyncio
import enum

import psycopg
import pytest
from turnwright_values.store import Durability

from turnwright_core.errors import TurnwrightError
from turnwright_store.edge.postgres import PostgresDatabase
from turnwright_store.edge.postgres_link import Server
from turnwright_store.edge.postgres_pipe import BIGINT, BOOLEAN, BYTEA, FLOAT, TEXT, StatementPipeline, array
from turnwright_store.sql.clauses import parameters
from turnwright_store.sql.core import bindparam, insert, select, update
from turnwright_store.sql.lazy_tables import meta, scopes

FULL = Durability.FULL
ADD = insert(scopes).values(parameters("key"))
ADD_META = insert(meta).values(parameters("key", "value"))
RAISE = update(scopes).where(scopes.c.id == bindparam("is_id")).values(revision=bindparam("new_revision"))
KEYS = select(scopes.c.key).where(scopes.c.key.like("run:%")).order_by(scopes.c.id)
REVISIONS = select(scopes.c.id, scopes.c.revision).where(scopes.c.key.like("run:%")).order_by(scopes.c.id)


class Numbers(enum.IntEnum):
    """A number by a name."""

    THREE = 3


@pytest.fixture
def pipe(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        yield StatementPipeline(raw, 10.0)


def test_a_server_that_says_nothing_is_lost(postgres_url):
    """Whoever waited is told, and its connection is closed: nothing more comes of it."""
    with psycopg.connect(postgres_url, autocommit=True) as raw:
        pipe = StatementPipeline(raw, 0.05)
        with pytest.raises(psycopg.OperationalError, match="said nothing"):
            pipe.query("SELECT pg_sleep(10)")
        assert raw.closed


def test_values_come_back_as_they_were_sent(pipe):
    values = [1, "é'\\", b"\x00\xff", True, 1.5, None, [1, 2], ["a", "{b}"], []]
    kinds = ["bigint", "text", "bytea", "boolean", "float8", "text", "bigint[]", "text[]", "text[]"]
    marks = ", ".join(f"${place}::{kind}" for place, kind in enumerate(kinds, 1))
    assert list(pipe.query(f"SELECT {marks}", values)) == [tuple(values)]
    assert list(pipe.query("SELECT $1::bigint", [Numbers.THREE])) == [(3,)]


def test_columns_of_many_rows_come_back_as_they_were_sent(pipe):
    columns = {
        BIGINT: [1, None, -(2**63)],
        TEXT: ["a", "é", None],
        BYTEA: [b"", None, b"x"],
        BOOLEAN: [True, None, False],
        FLOAT: [1.5, None, -2.0],
    }
    sql = "SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::boolean[], $5::float8[])"
    arrays = [array(kind, values) for kind, values in columns.items()]
    assert list(pipe.query(sql, arrays)) == list(zip(*columns.values(), strict=True))


def test_a_text_with_nul_is_refused_before_it_is_cut(pipe):
    with pytest.raises(psycopg.DataError, match="NUL"):
        pipe.send("SELECT $1::text", ["a\0b"])
    with pytest.raises(psycopg.DataError):
        pipe.query("SELECT * FROM unnest($1::text[])", [array(TEXT, ["a\0b"])])
    assert list(pipe.query("SELECT 1")) == [(1,)]


def test_what_stands_behind_a_failure_is_not_done_and_the_next_question_is(pipe):
    pipe.query("CREATE TEMP TABLE t (x int)")
    pipe.send("BEGIN")
    failing, behind = pipe.send("SELECT 1/0"), pipe.send("INSERT INTO t VALUES (1)")
    with pytest.raises(psycopg.errors.DivisionByZero):
        pipe.sync()
    for answer in (failing, behind):
        with pytest.raises(psycopg.errors.DivisionByZero):
            list(answer)
    pipe.query("ROLLBACK")
    assert pipe.query("INSERT INTO t VALUES (2), (3)").rowcount == 2
    assert list(pipe.query("SELECT x FROM t")) == [(2,), (3,)]


@pytest.mark.asyncio
async def test_many_rows_are_one_statement_and_nobody_hears_of_the_failure_of_another(postgres_url):
    """Rows that are only stored are not waited for; whose they were is told all the same."""
    database = PostgresDatabase(
        Server(postgres_url, 3.0, 10.0, 5.0), queue_max=100, batch_max=64, readers=1, poll_s=60.0
    )
    await database.start()
    before = database.stats().statements
    rows = [(f"run:{number}",) for number in range(2500)]
    await database.write(lambda tx: tx.connection.insert((ADD, ("key",)), rows), FULL, ())
    assert database.stats().statements - before == 3
    found = await database.read(lambda connection: connection.execute(REVISIONS).all())
    raised = [{"is_id": one, "new_revision": one} for one, _ in found]
    await database.write(lambda tx: tx.connection.execute_many(RAISE, raised), FULL, ())
    assert await database.read(lambda c: c.execute(REVISIONS).all()) == [(one, one) for one, _ in found]
    twice = [("run:0",), ("run:0",)]
    answers = await asyncio.gather(
        *(
            database.write(lambda tx, n=n: tx.connection.execute(ADD_META, {"key": n, "value": n}), FULL, ())
            for n in "ab"
        ),
        database.write(lambda tx: tx.connection.insert((ADD, ("key",)), twice), FULL, ()),
        return_exceptions=True,
    )
    assert [isinstance(answer, psycopg.errors.UniqueViolation | TurnwrightError) for answer in answers] == [
        False,
        False,
        True,
    ]
    kept = await database.read(lambda connection: set(connection.execute(select(meta.c.key)).scalars()))
    await database.close()
    assert {"a", "b"} <= kept
