"""Fixtures of the assembler's contract: a scripted store, and a client of an assembler in front of it."""

import pytest_asyncio

from contract.assembler.stack import SECRET, Client, ScriptedStore, start_assembler
from turnwright_kit.server import RunningServer


@pytest_asyncio.fixture
async def store(tmp_path):
    scripted = ScriptedStore()
    server = RunningServer(scripted.service(), f"unix:{tmp_path}/store.sock", SECRET, 0.1)
    await server.start()
    yield scripted
    await server.stop()


@pytest_asyncio.fixture
async def client(tmp_path, store):
    server = await start_assembler(tmp_path)
    one = Client(server.address)
    yield one
    await one.channel.close()
    await server.stop()
