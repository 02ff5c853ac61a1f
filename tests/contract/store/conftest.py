"""Fixtures of the store's contract: a store in a directory of the test, on each database in turn, and clients of it."""

import shutil

import pytest
import pytest_asyncio

from contract.store.harness import Client, new_project, start_store, working_run
from databases import migrated_file


@pytest.fixture(autouse=True, params=["sqlite", "postgresql"])
def db(request, monkeypatch, tmp_path):
    """The database of every store that the test starts, in this process or another: TURNWRIGHT_DB says it.

    On SQLite it is empty: the file in the store's home.
    """
    if request.param == "sqlite":
        monkeypatch.delenv("TURNWRIGHT_DB", raising=False)
        shutil.copy(migrated_file(), tmp_path)
        return ""
    url = request.getfixturevalue("postgres_url")
    monkeypatch.setenv("TURNWRIGHT_DB", url)
    return url


@pytest_asyncio.fixture
async def server(db, tmp_path):
    running = await start_store(tmp_path, heartbeat_s=0.2)
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def client(server):
    one = Client(server.address)
    yield one
    await one.close()


@pytest_asyncio.fixture
async def project(client):
    return await new_project(client)


@pytest_asyncio.fixture
async def run(client, project):
    """A run with a running loop, held by its owner; no turn is open."""
    return await working_run(client, project, "r1")
