"""How the steps of a turn reach the store: what is written together, in which order, and what survives a power loss."""

import asyncio

import grpc
import pytest
from turnwright.store.v1 import write_pb2

from services import running

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">All is done.</update>'


class Asked(grpc.aio.ServerInterceptor):
    """Keeps what the store was asked for by some methods, in order; unless others are named, to write under a fence."""

    def __init__(self, *methods):
        self.methods = methods or ("BeginTurn", "WriteEntries", "EndTurn")
        self.asked = []

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        method = details.method.rpartition("/")[2]
        if method not in self.methods or "StoreService" not in details.method:
            return handler

        async def kept(request, context):
            self.asked.append((method, request))
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(kept, handler.request_deserializer, handler.response_serializer)

    def told(self, path):
        """Each request that writes the path: its place, whether it is made to survive a power loss, and the state."""
        return [
            (place, method == "EndTurn" or request.durability == write_pb2.DURABILITY_FULL, write.set.state)
            for place, (method, request) in enumerate(self.asked)
            for write in request.writes
            if write.path == path
        ]


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")


async def test_one_full_write_before_an_outside_effect_also_finishes_the_command_before(tmp_path):
    """RECORD, then a mark for each command that carries the end of the one before it, then the verdict."""
    writes = Asked()
    async with running(tmp_path, [writes]) as services:
        services.script(f"<sh>true</sh><sh>echo b</sh>{DONE}")
        assert (await services.until(await services.act())).status == 200
    first, second = writes.told("log://turn_1/sh/true"), writes.told("log://turn_1/sh/echo_b")
    record, mark, end = first
    assert [full for _, full, _ in first] == [True, True, True]
    assert (record[0], end[0]) == (second[0][0], second[1][0])
    assert record[0] < mark[0] < end[0] < second[2][0]
    assert writes.asked[second[2][0]][0] == "EndTurn"
    assert [full for _, full, _ in second] == [True, True, True]


async def test_the_reply_and_all_its_commands_are_one_write_before_any_of_them_is_carried_out(tmp_path):
    """RU128."""
    writes = Asked()
    async with running(tmp_path, [writes]) as services:
        services.script(f'<get path="a.txt"/><sh>true</sh>{DONE}')
        await services.until(await services.act())
    places = {
        writes.told(path)[0][0]
        for path in ("assistant://1", "log://turn_1/get/a.txt", "log://turn_1/sh/true", "log://turn_1/update/3")
    }
    assert len(places) == 1


async def test_a_command_that_changes_nothing_costs_no_write_of_its_own(tmp_path):
    writes = Asked()
    async with running(tmp_path, [writes]) as services:
        services.script(f'<set path="known://a">A.</set><think>So.</think>{DONE}')
        await services.until(await services.act())
    assert [method for method, _ in writes.asked] == ["BeginTurn", "WriteEntries", "WriteEntries", "EndTurn"]


async def test_the_entries_that_a_turns_commands_name_are_read_in_one_call(tmp_path):
    reads = Asked("GetEntries")
    async with running(tmp_path, [reads]) as services:
        for name in "abc":
            (services.files / name).write_text(name)
        services.script(f'<get path="a"/><get path="b"/><get path="c"/><get path="known://none"/>{DONE}')
        await services.until(await services.act())
    assert [set(request.paths) for _, request in reads.asked] == [{"a", "b", "c", "known://none"}]


async def test_what_an_effect_may_have_changed_is_read_again(tmp_path):
    """While the command of the turn runs, somebody else changes what a later command reads."""
    async with running(tmp_path) as services:
        services.script(
            '<set path="known://a">old</set><get path="known://a"/><sh>touch begun; while [ ! -e go ]; do sleep 0.05; done</sh>'
            f'<cp path="known://a" to="known://b"/>{DONE}'
        )
        queued = await services.act()
        while not (services.files / "begun").exists():  # noqa: ASYNC110 - a file tells
            await asyncio.sleep(0.05)
        await services.client.call_tool(services.project, "r", "set", {"path": "known://a"}, "new")
        (services.files / "go").touch()
        await services.until(queued)
        assert (await services.entry("known://b")).body == "new"
