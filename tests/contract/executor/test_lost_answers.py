"""A write of the store that is committed while its answer is lost: nothing of it is written twice."""

import asyncio
import contextlib

import grpc
import pytest

from contract.executor.test_pipeline import DONE
from proxy import proxied
from services import running
from turnwright_core.errors import MissingError

pytestmark = pytest.mark.asyncio


class Committed(grpc.aio.ServerInterceptor):
    """Calls a function when the store has committed a reply by some method and has not answered yet."""

    def __init__(self, method, then):
        self.method = method
        self.then = then

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if details.method.rpartition("/")[2] != self.method:
            return handler

        async def answer(request, context):
            answered = await handler.unary_unary(request, context)
            if any(write.path == "assistant://1" for write in request.writes):
                await self.then()
            return answered

        return grpc.unary_unary_rpc_method_handler(answer, handler.request_deserializer, handler.response_serializer)


@pytest.fixture(params=["sqlite", "postgresql"])
def db(request):
    return "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


async def stored(services, path):
    """The entry, once it is there."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(MissingError):
                return await services.entry(path)
            await asyncio.sleep(0.02)


async def paths_of(services, pattern="log://turn_1/**"):
    return [entry.path async for entry in services.client.list_entries(services.project, "r", pattern)]


async def test_a_reply_that_is_stored_while_a_command_takes_long_is_stored_once(tmp_path, nap, db):
    async with contextlib.AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(proxied(f"unix:{tmp_path}/store.sock"))
        lost = asyncio.Event()

        async def lose():
            if not lost.is_set():
                lost.set()
                proxy.reset()

        services = await stack.enter_async_context(
            running(tmp_path, [Committed("WriteEntries", lose)], {"db": db}, store=proxy.address, tools=nap)
        )
        services.script(f"<think>Now.</think><nap/>{DONE}", "<think>Asked again.</think>")
        queued = await services.act()
        await stored(services, "log://turn_1/nap/2")
        await asyncio.wait_for(lost.wait(), 60)
        (tmp_path / "go").touch()
        loop = await asyncio.wait_for(services.until(queued), 60)
        assert (loop.status, loop.turns) == (200, 1)
        assert sorted(await paths_of(services)) == [f"log://turn_1/{one}" for one in ("nap/2", "think/1", "update/3")]
        assert [await services.status(path) for path in await paths_of(services)] == [200] * 3
        assert "Now." in (await services.entry("assistant://1")).body


async def test_a_turn_that_ended_as_its_loop_was_aborted_keeps_its_records_once(tmp_path, monkeypatch, db):
    """The abort stops the call that has ended the turn; what is kept then is there already."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    ended, told = asyncio.Event(), asyncio.Event()

    async def wait():
        ended.set()
        await told.wait()

    async with running(tmp_path, [Committed("EndTurn", wait)], {"db": db}) as services:
        services.script('<think>Now.</think><update status="102">Going on.</update>', DONE)
        queued = await services.act()
        await asyncio.wait_for(ended.wait(), 60)
        await services.client.abort(services.project, "r")
        loop = await asyncio.wait_for(services.until(queued), 60)
        told.set()
        assert loop.status == 499
        assert sorted(await paths_of(services)) == ["log://turn_1/think/1", "log://turn_1/update/2"]
