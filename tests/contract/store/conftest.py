"""Fixtures of the store's contract: a store on SQLite in a directory of the test, and clients of it."""

import pytest_asyncio

from contract.store.harness import Client, new_project, start_store, working_run


@pytest_asyncio.fixture
async def server(tmp_path):
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
