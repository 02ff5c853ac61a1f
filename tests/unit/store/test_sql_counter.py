"""The instrument that benchmarks count statements with sees all of them."""

import pytest
from sqlalchemy import text
from turnwright_values.store import Durability

from sql_counter import counted_statements, seen_transactions
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.sql.scopes import find_meta, put_meta


@pytest.mark.asyncio
async def test_each_statement_of_a_store_is_seen_whichever_way_it_takes(tmp_path):
    with counted_statements() as counted:
        database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=10, batch_max=10, readers=1)
        await database.start()
        counted.clear()
        before = database.stats()

        await database.write(lambda tx: [put_meta(tx.connection, key, "x") for key in "abc"], Durability.FULL, ())
        assert (counted["BEGIN"], counted["COMMIT"]) == (1, 1)
        assert await database.read(lambda connection: find_meta(connection, "b")) == "x"
        await database.read(lambda connection: connection.execute(text("SELECT 1")))
        assert (counted["BEGIN"], counted["COMMIT"], counted["SELECT"]) == (3, 3, 2)

        sent = counted.total() - sum(counted[word] for word in ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "PRAGMA"))
        assert sent == database.stats().statements - before.statements >= 5
        await database.close()


@pytest.mark.asyncio
async def test_each_transaction_of_a_store_is_seen_with_all_its_statements(tmp_path):
    with seen_transactions() as seen:
        database = SqliteDatabase(tmp_path / "x.db", lambda: 0, queue_max=10, batch_max=10, readers=1)
        await database.start()
        seen.clear()
        await database.write(lambda tx: [put_meta(tx.connection, key, "x") for key in "abc"], Durability.FULL, ())
        await database.read(lambda connection: find_meta(connection, "b"))
        with pytest.raises(ZeroDivisionError):
            await database.write(lambda tx: put_meta(tx.connection, "d", "x") or 1 / 0, Durability.FULL, ())
        await database.close()
    written, read = seen
    assert [statement.split()[0] for statement in written] == ["BEGIN", "INSERT", "INSERT", "INSERT", "COMMIT"]
    assert [statement.split()[0] for statement in read] == ["BEGIN", "SELECT", "COMMIT"]
