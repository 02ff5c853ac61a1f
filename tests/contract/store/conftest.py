"""Fixtures of the store's contract: a store in a directory of the test, on each database in turn, and clients of it."""

import secrets
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
    return database_of_the_test(request.param, request, monkeypatch, tmp_path)


def database_of_the_test(kind, request, monkeypatch, tmp_path) -> str:
    if kind == "sqlite":
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


# ---- One store for the tests of a module: each has a project of its own, and all run in the loop of the module.


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_client(shared_database, tmp_path_factory):
    """For tests that set nothing of the store, and count nothing of all projects."""
    home = tmp_path_factory.mktemp("store")
    if not shared_database:
        shutil.copy(migrated_file(), home)
    running = await start_store(home, heartbeat_s=0.2, **({"db": shared_database} if shared_database else {}))
    one = Client(running.address)
    yield one
    await one.close()
    await running.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def shared_project(shared_client):
    return await new_project(shared_client, f"demo-{secrets.token_hex(4)}")


@pytest_asyncio.fixture(loop_scope="module")
async def shared_run(shared_client, shared_project):
    return await working_run(shared_client, shared_project, "r1")


@pytest.fixture
def own_db(shared_database, request, monkeypatch, tmp_path):
    """What a store of the test's own needs: a database of the kind that the others share."""
    return database_of_the_test("postgresql" if shared_database else "sqlite", request, monkeypatch, tmp_path)


@pytest_asyncio.fixture(loop_scope="module")
async def own_server(own_db, tmp_path):
    """A store for one test of a module whose other tests share one."""
    running = await start_store(tmp_path, heartbeat_s=0.2)
    yield running
    await running.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def own_client(own_server):
    one = Client(own_server.address)
    yield one
    await one.close()


@pytest_asyncio.fixture(loop_scope="module")
async def own_project(own_client):
    return await new_project(own_client)


@pytest_asyncio.fixture(loop_scope="module")
async def own_run(own_client, own_project):
    return await working_run(own_client, own_project, "r1")
