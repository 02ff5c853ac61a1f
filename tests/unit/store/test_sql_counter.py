"""The instrument that tests and benchmarks count statements with sees all of them."""

import sqlite3
from collections import Counter

import pytest
from turnwright_values.store import Durability

from services import running
from sql_counter import counted_statements, seen_transactions, sent
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.sql.scopes import find_meta, put_meta

pytestmark = pytest.mark.asyncio

OF_THE_DRIVER = (
    *("PRAGMA", "SELECT count(*) FROM sqlite_master", "SELECT 1 FROM", "SELECT name FROM", "SELECT version_num"),
    "SELECT k, v FROM",
    "ROLLBACK",
)
"""What sets a connection up, what looks at the schema and at the file, what ends a read, and what the full text index
asks by itself."""


async def test_every_statement_of_a_turn_is_executed_by_sqlalchemy(tmp_path, monkeypatch):
    """What SQLite carries out is what `before_cursor_execute` tells of."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    carried_out: Counter[str] = Counter()
    connect = sqlite3.connect

    def see(statement):
        # What a trigger or the full text index carries out within a statement comes as a comment.
        if not statement.startswith(("--", *OF_THE_DRIVER)):
            carried_out[statement.split(None, 1)[0].upper()] += 1

    def traced(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.set_trace_callback(see)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    with counted_statements() as counted:
        async with running(tmp_path) as services:
            (services.files / "a.txt").write_text("a\n")
            services.script(
                '<get path="a.txt"/><update status="102">read</update>', '<update status="200">done</update>'
            )
            assert (await services.until(await services.act())).status == 200
    assert counted["INSERT"] > 20
    assert counted["SELECT"] == carried_out["SELECT"]
    # A statement for many rows is one to SQLAlchemy, and one for each row to SQLite.
    assert counted.keys() - {"PRAGMA"} == carried_out.keys()


async def test_each_statement_of_a_store_is_counted(tmp_path):
    with counted_statements() as counted:
        database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=10, batch_max=10, readers=1)
        await database.start()
        counted.clear()
        await database.write(lambda tx: [put_meta(tx.connection, key, "x") for key in "abc"], Durability.FULL, ())
        assert await database.read(lambda connection: find_meta(connection, "b")) == "x"
        assert (counted["INSERT"], counted["SELECT"], sent(counted)) == (3, 1, 4)
        await database.close()


async def test_each_transaction_of_a_store_is_seen_with_all_its_statements(tmp_path):
    with seen_transactions() as seen:
        database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=10, batch_max=10, readers=1)
        await database.start()
        seen.clear()
        await database.write(lambda tx: [put_meta(tx.connection, key, "x") for key in "abc"], Durability.FULL, ())
        with pytest.raises(ZeroDivisionError):
            await database.write(lambda tx: put_meta(tx.connection, "d", "x") or 1 / 0, Durability.FULL, ())
        await database.close()
    [written] = seen
    assert [statement.split()[0] for statement in written] == ["BEGIN", "INSERT", "INSERT", "INSERT", "COMMIT"]
