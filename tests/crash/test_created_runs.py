"""An executor is killed around the call that creates a run and claims it: the task is there once, and is worked on."""

import asyncio

import pytest
from turnwright.types.v1 import settings_pb2

from contract.store.harness import SECRET
from crash.stack import ENDURING, Stack, insisted, until_ended
from turnwright_client import Client

pytestmark = pytest.mark.asyncio

REPLY = '<update status="200">All is done.</update>'


@pytest.fixture
def stack(tmp_path):
    made = Stack(tmp_path, "")
    yield made
    made.close()


async def test_a_task_whose_executor_is_killed_is_there_once(stack):
    await stack.start()
    await stack.add_model("m", REPLY, REPLY)
    executor = stack.lives["executor0"]
    settings = settings_pb2.LoopSettings(model="m", yolo=True)
    for point in ("before create 1", "after create 1"):
        run = point.replace(" ", "-")
        executor.kill()
        executor.start(point)
        async with Client.connect(stack.at("executor0"), SECRET, policy=ENDURING) as client:
            await insisted(client.discover)
            dying = asyncio.ensure_future(executor.ended(60))
            given = asyncio.ensure_future(
                insisted(
                    lambda run=run: client.act(stack.project, "Do it.", run=run, settings=settings, request_id=run)
                )
            )
            assert await dying
            executor.start()
            loop = await until_ended(client, await given)
            found = await insisted(lambda run=run: client.get_run(stack.project, run))
        assert (loop.status, loop.turns) == (200, 1)
        assert [(one.sequence, one.status) for one in found.loops] == [(1, 200)]
    assert stack.complaints() == {}
