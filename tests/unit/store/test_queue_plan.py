"""The question for work walks the open loops and the claimed runs, however many runs and loops there are beside them."""

import re

import pytest
import sqlalchemy
from sqlalchemy import insert

from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.ports import Durability
from turnwright_store.sql import work
from turnwright_store.sql.tables import loops, projects, runs, scopes

pytestmark = pytest.mark.asyncio

ENDED, OPEN = 2000, 20


def fill(tx):
    """A project with many runs whose loops have ended, and a few that wait."""
    numbers = range(1, ENDED + OPEN + 1)
    connection = tx.connection
    connection.execute(insert(scopes), [{"key": f"run:1:{number}"} for number in numbers])
    (scope,) = connection.execute(insert(scopes).returning(scopes.c.id), {"key": "project:w"}).scalars()
    project = {"scope_id": scope, "name": "p", "root": "/p", "workspace_id": "w", "create_ms": 1}
    (owner,) = connection.execute(insert(projects).returning(projects.c.id), project).scalars()
    first = connection.execute(sqlalchemy.text("SELECT id FROM scopes WHERE key = 'run:1:1'")).scalar_one()
    rows = [
        {"id": n, "project_id": owner, "scope_id": first + n - 1, "alias": f"r{n}", "loops": 1}
        | {"status": 200 if n <= ENDED else 100, "loops_queued": int(n > ENDED), "model": "m"}
        | {"create_ms": 1, "update_ms": n}
        for n in numbers
    ]
    connection.execute(insert(runs), rows)
    queued = {"sequence": 1, "settings": "{}", "prompt": "x", "create_ms": 1, "revision": 1}
    statuses = [{"run_id": n, "status": 200 if n <= ENDED else 100, **queued} for n in numbers]
    connection.execute(insert(loops), statuses)


def plan(connection):
    """How SQLite goes about it."""
    compiled = work._WAITING.params(page=10, grace_ms=0).compile(dialect=connection.dialect)
    sql = str(compiled)
    for name in compiled.positiontup or []:
        sql = sql.replace("?", str(compiled.params[name]), 1)
    return [row[-1] for row in connection.execute(sqlalchemy.text("EXPLAIN QUERY PLAN " + sql))]


async def test_the_question_for_work_scans_nothing_but_open_loops_and_claimed_runs(tmp_path):
    database = SqliteDatabase(tmp_path / "x.db", lambda: 1, queue_max=9, batch_max=9, readers=1)
    await database.start()
    await database.write(fill, Durability.NORMAL, ())
    waiting = await database.read(lambda connection: work.list_waiting(connection, (), 0, 100))
    steps = await database.read(plan)
    await database.close()
    assert [row.run for row in waiting] == [f"r{number}" for number in range(ENDED + 1, ENDED + OPEN + 1)]
    scanned = {step for step in steps if re.match(r"SCAN (?!\(|open_runs|leased_runs)", step)}
    assert scanned == {"SCAN loops USING INDEX ix_loops_open", "SCAN runs USING INDEX ix_runs_claimed"}
