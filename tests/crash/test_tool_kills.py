"""An executor is killed while a server carries out a call of a tool, and another one takes the run over.

A call of which nobody knows whether it happened is sent again only if its tool says that this is harmless, with the key
of the first. Rows RD02, RU014; docs/adr/0081.
"""

import asyncio

import pytest
from turnwright.types.v1 import settings_pb2

from contract.executor.tool_servers import file_of, served
from contract.store.harness import SECRET
from crash.stack import ENDURING, Stack, insisted
from turnwright_client import Client
from turnwright_client.tool_server import ToolServer

UNKNOWN = "indeterminate:500"
DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">On.</update>'


class Deadly(ToolServer):
    """Kills the executor that calls, the first time that each run calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = []
        self.kill = None
        self.killed = asyncio.Event()
        for effect_class in ("pure", "idempotent", "outside"):
            self.tool(effect_class, "Does it.", effect_class=effect_class)(self.handle)

    async def Dispatch(self, request, context):
        if request.start:
            # One that names none is told it, and begins nothing.
            self.calls.append(request)
        async for answer in super().Dispatch(request, context):
            yield answer

    async def handle(self, _call):
        if self.kill:
            kill, self.kill = self.kill, None
            try:
                await asyncio.to_thread(kill)
            finally:
                # The call ends with its caller, which may be before the kill is known to be done.
                self.killed.set()
        return "done"


async def listed(client, project):
    """The tools that the next loop is offered."""
    found = await insisted(lambda: client.list_tools(project, check=True))
    return {tool.name for tool in found.tools}


@pytest.mark.asyncio
@pytest.mark.parametrize("effect_class", ["pure", "idempotent", "outside"])
async def test_a_killed_executor_has_no_outside_call_repeated(tmp_path, effect_class):
    server = Deadly()
    async with served(server) as address:
        made = Stack(tmp_path, "", executors=2, tool_servers=file_of(tmp_path / "servers.toml", {"t": address}))
        try:
            await made.start()
            first, second = made.lives["executor0"], made.lives["executor1"]
            second.kill()
            await made.add_model("m", f"<t.{effect_class}/>{GO_ON}", *[DONE] * 5)
            async with Client.connect(made.at(first.name), SECRET) as client:
                wanted = settings_pb2.LoopSettings(model="m", yolo=True)
                while f"t.{effect_class}" not in await listed(client, made.project):  # noqa: ASYNC110 - servers are asked when they are needed
                    await asyncio.sleep(0.1)
                server.kill = first.kill
                await client.act(made.project, "Do it.", run="r", settings=wanted)
            async with asyncio.timeout(60):
                await server.killed.wait()
            second.start()
            async with Client.connect(made.at(second.name), SECRET, policy=ENDURING) as client:
                loop = await insisted(lambda: client.wait_loop(made.project, "r", 1))
                record = await client.get_entry(made.project, "r", f"log://turn_1/result/t.{effect_class}/1")
        finally:
            made.close()
    assert loop.status == 200
    if effect_class == "outside":
        assert [call.call_id for call in server.calls] == ["log://turn_1/result/t.outside/1"]
        assert record.outcome == UNKNOWN
        return
    one, again = server.calls
    assert one.idempotency_key == again.idempotency_key
    assert one.call_id == again.call_id
    assert one.epoch < again.epoch
    assert (record.outcome, record.body) == ("", "done")
