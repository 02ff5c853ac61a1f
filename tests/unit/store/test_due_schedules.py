"""Schedules that are due are taken by turns over runs: many of one run delay those of others by one at most."""

import pytest
from turnwright_values.store import Durability

from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.sql import schedules as rows
from turnwright_store.sql.tables import schedules

from .test_queue_plan import add, fill

pytestmark = pytest.mark.asyncio


async def test_the_next_schedule_of_each_run_is_taken(tmp_path):
    def schedule(number, run, due_ms):
        return {
            "id": number,
            "run_id": run,
            "schedule_id": f"s{number}",
            "next_ms": due_ms,
            "due_ms": due_ms,
            "every_s": 1,
        }

    database = SqliteDatabase(tmp_path / "one.db", lambda: 1, queue_max=9, batch_max=9, readers=1)
    await database.start()
    try:
        await database.write(lambda tx: fill(tx, 3, 0), Durability.NORMAL, ())
        due = [schedule(number, 1, number) for number in range(1, 61)]
        due += [schedule(61, 2, 50), schedule(62, 2, 50), schedule(63, 3, 2**60)]
        await database.write(lambda tx: add(tx.connection, schedules, due), Durability.NORMAL, ())
        found = await database.read(lambda connection: rows.list_due(connection, 50))
    finally:
        await database.close()
    assert [(run, name) for _, run, name in found] == [("r1", "s1"), ("r2", "s61")]
