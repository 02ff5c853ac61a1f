"""The store is killed when it has committed a reply whose commands are under way, before it answers."""

import pytest
from turnwright.types.v1 import settings_pb2
from turnwright_values.types import State

from contract.store.harness import SECRET
from crash.stack import ENDURING, Stack, insisted, records_of, until_ended
from turnwright_client import Client

pytestmark = pytest.mark.asyncio

REPLY = '<think>Now.</think><nap/><update status="200">All is done.</update>'
RECORDS = {f"log://turn_1/{one}": State.RESOLVED for one in ("nap/2", "think/1", "update/3")}


@pytest.fixture(params=["sqlite", "postgresql"])
def stack(request, tmp_path):
    db = "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    made = Stack(tmp_path, db, tools="crash.napping:register")
    yield made
    made.close()


async def records_of_turn(stack):
    found = await records_of(stack, "r")
    return {entry.path: State(entry.state) for entry in found if entry.path.startswith("log://turn_1/")}


async def test_each_command_of_the_reply_has_one_record(stack):
    # The first write of the run is its packet.
    await stack.start(store0="after answer 2")
    await stack.add_model("m", REPLY, "<think>Asked again.</think>")
    store = stack.lives["store0"]
    async with Client.connect(stack.at("executor0"), SECRET, policy=ENDURING) as client:
        store.count()
        settings = settings_pb2.LoopSettings(model="m", yolo=True)
        queued = await client.act(stack.project, "Do it.", run="r", settings=settings)
        assert await store.ended(60)
        store.start()
        assert (await records_of_turn(stack)).keys() == RECORDS.keys()
        (stack.root / "go").touch()
        loop = await until_ended(client, queued)
        said = await insisted(lambda: client.get_entry(stack.project, "r", "assistant://1"))
    assert (loop.status, loop.turns, "Now." in said.body) == (200, 1, True)
    assert await records_of_turn(stack) == RECORDS
    assert stack.complaints() == {}
