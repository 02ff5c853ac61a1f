"""A store is killed inside of a change and after it: the change and its row of the audit are both there, or neither."""

import asyncio

import pytest
from sqlalchemy import text

from contract.store.counting import connected
from contract.store.harness import Client, new_project, new_run
from crash.test_kills import Store
from crash.workers import AWAY
from turnwright_core.errors import TurnwrightError

pytestmark = pytest.mark.asyncio


@pytest.fixture
def store(database, tmp_path):
    one = Store(tmp_path, database)
    yield one
    one.close()


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
async def test_a_change_and_its_row_are_both_there_or_neither(store):
    client = Client(store.address)
    store.start()
    await store.serving(client)
    project = await new_project(client)
    for number, point in enumerate(("statement INSERT INTO audit 1", "reply CreateRun 1")):
        store.kill()
        store.start(point)
        await store.serving(client)
        dying = asyncio.ensure_future(store.ended(60))
        with pytest.raises(TurnwrightError) as lost:
            await new_run(client, project, f"r{number}")
        assert lost.value.reason in AWAY
        await dying
    await client.close()
    with connected(store.db, store.home) as connection:
        found = [
            connection.execute(text(statement)).scalars().all()
            for statement in ("SELECT alias FROM runs", "SELECT run FROM audit WHERE method = 'CreateRun'")
        ]
    assert found == [["r1"], ["r1"]]
