"""What it costs to look for rows that removed runs have left: the length of a line of forks is not in it."""

import pytest
import pytest_asyncio
from sqlalchemy import insert, update
from turnwright_values.store import Durability

from sql_counter import counted_statements, sent
from turnwright_store.app.retention import Purge
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.sql.scopes import add_scope
from turnwright_store.sql.tables import projects, runs

pytestmark = pytest.mark.asyncio

NOW_MS = 1000


@pytest_asyncio.fixture
async def database(tmp_path):
    one = SqliteDatabase(tmp_path / "x.db", lambda: NOW_MS, queue_max=9, batch_max=9, readers=1)
    await one.start()
    yield one
    await one.close()


async def line_of_forks(database, length):
    """Each run is the fork of the one before; all but the last are removed."""

    def fill(tx):
        project = {"scope_id": add_scope(tx, "project:1"), "root": "/p", "workspace_id": "w", "create_ms": 1}
        tx.connection.execute(insert(projects).values(id=1, name="p", **project))
        for number in range(1, length + 1):
            run = {
                "id": number,
                "project_id": 1,
                "scope_id": add_scope(tx, f"run:{number}"),
                "alias": f"r{number}" if number == length else f"r{number}~{number}",
                "status": 100,
                "model": "m",
                "create_ms": 1,
                "update_ms": 1,
                "removed_ms": 0 if number == length else 1,
                "forked_from_run": f"r{number - 1}" if number > 1 else "",
                "lineage": 1 if number > 1 else 0,
            }
            tx.connection.execute(insert(runs).values(**run))

    await database.write(fill, Durability.NORMAL, ())


async def left(database):
    return await database.read(lambda core: [row[0] for row in core.execute(runs.select().order_by(runs.c.id))])


async def cost_of_a_look(database, purge):
    """Statements, and transactions of the writer."""
    with counted_statements() as counted:
        assert await purge.step() is False
    return sent(counted), counted["BEGIN IMMEDIATE"]


async def test_a_look_that_finds_nothing_to_do_costs_the_same_for_any_line_of_forks(database):
    await line_of_forks(database, 40)
    purge = Purge(database, 0.0)
    assert await purge.step() is True
    assert await left(database) == list(range(1, 41))
    assert await cost_of_a_look(database, purge) == (3, 0)


async def test_when_the_last_of_a_line_is_removed_all_of_it_goes(database):
    await line_of_forks(database, 40)
    purge = Purge(database, 0.0)
    await purge.step()
    removal = update(runs).where(runs.c.id == 40).values(removed_ms=NOW_MS, alias="r40~40")
    await database.write(lambda tx: tx.connection.execute(removal) and None, Durability.NORMAL, ())
    assert await purge.step() is True
    assert await left(database) == []
    assert await cost_of_a_look(database, purge) == (2, 0)
