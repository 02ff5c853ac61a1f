"""A home's live stack is found by its record and its answer; a dead one is not."""

from __future__ import annotations

import contextlib
import os

import pytest

from turnwright_cli.discovery import StackRecord, another_serves, locate, read_record, record_file
from turnwright_core.rpc.transport import PLAINTEXT
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service


@contextlib.asynccontextmanager
async def executor_at(address: str):
    """Something that serves health as the executor does."""
    service = Service("executor", "turnwright.executor.v1.ExecutorService", lambda _server: None)
    server = RunningServer(service, address, "secret", 1.0)
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop()


@pytest.mark.asyncio
async def test_a_given_server_is_used_unasked(tmp_path) -> None:
    assert await locate(tmp_path, "10.0.0.1:7440") == "10.0.0.1:7440"


@pytest.mark.asyncio
async def test_a_live_stack_is_found_by_its_record(tmp_path) -> None:
    async with executor_at(f"unix:{tmp_path}/x.sock") as address:
        StackRecord(address, os.getpid()).write(tmp_path)

        assert await locate(tmp_path) == address

    assert await locate(tmp_path, timeout_s=0.5) is None


@pytest.mark.asyncio
async def test_a_server_that_does_not_know_the_executor_is_none(tmp_path) -> None:
    service = Service("store", "turnwright.store.v1.StoreService", lambda _server: None)
    server = RunningServer(service, f"unix:{tmp_path}/x.sock", "secret", 1.0)
    await server.start()
    try:
        StackRecord(server.address, 1).write(tmp_path)
        assert await locate(tmp_path) is None
    finally:
        await server.stop()


@pytest.mark.asyncio
@pytest.mark.parametrize("text", ["", "{", "[]", '{"executor": "x"}', '{"executor": "x", "pid": "y"}', "\xff"])
async def test_a_record_that_is_none_is_no_stack(tmp_path, text) -> None:
    record_file(tmp_path).parent.mkdir()
    record_file(tmp_path).write_text(text, encoding="latin-1")

    assert read_record(tmp_path) is None
    assert await locate(tmp_path) is None


def test_a_record_is_private_and_leaves_nothing_beside_it(tmp_path) -> None:
    StackRecord("unix:/x", 7).write(tmp_path)

    assert [file.name for file in (tmp_path / "run").iterdir()] == ["stack.json"]
    assert record_file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_stack_takes_back_its_own_record_only(tmp_path) -> None:
    mine, other = StackRecord("unix:/x", 7, embedded=True), StackRecord("unix:/x", 8)
    other.write(tmp_path)

    mine.remove(tmp_path)
    assert read_record(tmp_path) == other

    other.remove(tmp_path)
    assert read_record(tmp_path) is None
    other.remove(tmp_path)


@pytest.mark.asyncio
async def test_a_record_is_left_alone_while_its_stack_another_serves(tmp_path) -> None:
    mine = StackRecord("unix:/mine", os.getpid())

    async def left_alone(other: StackRecord, own: StackRecord = mine) -> bool:
        other.write(tmp_path)
        return await another_serves(own, tmp_path, PLAINTEXT)

    assert not await another_serves(mine, tmp_path, PLAINTEXT)
    async with executor_at(f"unix:{tmp_path}/x.sock") as address:
        assert await left_alone(StackRecord(address, 1))
        assert not await left_alone(StackRecord(address, 1, embedded=True))
        assert await left_alone(StackRecord(address, 1, embedded=True), StackRecord("unix:/mine", 2, embedded=True))
        # It has been started anew.
        assert not await left_alone(StackRecord(address, 1), StackRecord(address, 2))
    assert not await left_alone(StackRecord(address, 1))
