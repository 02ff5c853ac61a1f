"""A chore whose work comes from commits looks for it after a commit, and not again and again."""

import asyncio

import pytest
from turnwright_values.store import Durability

from turnwright_core.errors import Reason, fault
from turnwright_store.app.maintenance import Chore, Maintenance
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.sql.scopes import add_scope, bump_scope

pytestmark = pytest.mark.asyncio

OFTEN_S = 0.001


async def commit(database) -> None:
    await database.write(lambda tx: bump_scope(tx, add_scope(tx, f"s{tx.now_ms}")), Durability.NORMAL, ())


async def until(condition) -> None:
    for _ in range(30_000):
        if condition():
            return
        await asyncio.sleep(OFTEN_S)
    raise AssertionError("it never came")


async def test_it_looks_while_there_is_work_or_a_look_failed_and_then_after_each_commit(tmp_path):
    clock = iter(range(1, 99))
    database = SqliteDatabase(tmp_path / "x.db", lambda: next(clock), queue_max=9, batch_max=9, readers=1)
    await database.start()
    looks = others = 0

    async def piece() -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise fault(Reason.QUEUE_FULL, "later", queue="x", limit=1)
        return looks in (1, 3)

    async def other() -> bool:
        nonlocal others
        others += 1
        return False

    maintenance = Maintenance()
    maintenance.start([Chore("resting", OFTEN_S, piece, follows=database), Chore("other", OFTEN_S, other)])
    await until(lambda: looks == 4)
    begin = others
    await until(lambda: others > begin + 20)
    assert looks == 4
    for number in (5, 6):
        await commit(database)
        await until(lambda number=number: looks == number)
    await maintenance.stop()
    await database.close()
