"""The question for work costs the same however many runs wait, and however many runs and loops there are beside them."""

import pytest
import pytest_asyncio
from sqlalchemy import insert
from turnwright_values.store import Durability

from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.sql import work
from turnwright_store.sql.tables import loops, projects, runs, scopes

pytestmark = pytest.mark.asyncio

PROJECTS = 5


def add(connection, table, rows):
    connection.execute(insert(table), rows)


def fill(tx, waiting, ended):
    """Projects with so many runs in all whose loops wait, and so many whose loops have ended."""
    connection = tx.connection
    numbers = range(1, waiting + ended + 1)
    add(connection, scopes, [{"id": 1000 + n, "key": f"run:{n}"} for n in numbers])
    add(connection, scopes, [{"id": 10 + n, "key": f"project:{n}"} for n in range(PROJECTS)])
    made = [
        {"id": n + 1, "scope_id": 10 + n, "name": f"p{n}", "root": "/", "workspace_id": f"w{n}", "create_ms": 1}
        for n in range(PROJECTS)
    ]
    add(connection, projects, made)
    rows = [
        {"id": n, "project_id": 1 + n % PROJECTS, "scope_id": 1000 + n, "alias": f"r{n}", "loops": 1, "model": "m"}
        | {"status": 100 if n <= waiting else 200, "loops_queued": int(n <= waiting), "create_ms": 1, "update_ms": n}
        | {"next_loop": n if n <= waiting else 0}
        for n in numbers
    ]
    add(connection, runs, rows)
    queued = {"sequence": 1, "settings": "{}", "prompt": "x", "create_ms": 1, "revision": 1}
    add(connection, loops, [{"id": n, "run_id": n, "status": 100 if n <= waiting else 200, **queued} for n in numbers])


def steps(connection, ask):
    """The answer to a question, and how many steps the database took for it, in tens."""
    raw = connection.connection.driver_connection
    taken = [0]

    def count():
        taken[0] += 1
        return 0

    raw.set_progress_handler(count, 10)
    try:
        return ask(connection), taken[0]
    finally:
        raw.set_progress_handler(None, 0)


@pytest_asyncio.fixture
async def asked(tmp_path):
    """Asks a question of a database with so many runs."""
    opened = []

    async def ask(waiting, ended, question):
        database = SqliteDatabase(tmp_path / f"{len(opened)}.db", lambda: 1, queue_max=9, batch_max=9, readers=1)
        await database.start()
        opened.append(database)
        await database.write(lambda tx: fill(tx, waiting, ended), Durability.NORMAL, ())
        return await database.write(lambda tx: steps(tx.connection, question), Durability.NORMAL, ())

    yield ask
    for database in opened:
        await database.close()


@pytest.mark.slow
@pytest.mark.parametrize("workspaces", [(), ("w1", "w2")], ids=["any", "some"])
async def test_the_question_for_work_costs_the_same_for_ten_thousand_waiting_runs(asked, workspaces):
    def ask(connection):
        return work.list_waiting(connection, workspaces, 0, 33)

    few, little = await asked(500, 500, ask)
    many, much = await asked(10_000, 10_000, ask)
    assert [row.run for row in few] == [row.run for row in many]
    assert much <= 1.1 * little


async def test_all_that_wait_are_found_in_the_order_of_turns(asked):
    found, _ = await asked(100, 10, lambda connection: work.list_waiting(connection, (), 0, 1000))
    turns = [(row.turn, row.id) for row in found]
    assert turns == sorted(turns)
    assert sorted(row.id for row in found) == list(range(1, 101))
