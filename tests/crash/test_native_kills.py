"""An executor is killed between RECORD and DISPATCH of a batch of native calls, and another one ends the turn.

One of the calls fails by itself, and one may be left of which nobody knows whether it happened: neither stops the
others, every call has one result, and no effect happens twice. Rows RD02, RU014; decisions C28, C41.
"""

import contextlib
import itertools

import pytest
from turnwright.types.v1 import settings_pb2
from turnwright_values.types import Tier

from contract.store.harness import SECRET, act
from contract.store.harness import Client as StoreClient
from crash.stack import ENDURING, insisted
from turnwright_client import Client

UNKNOWN = "indeterminate:500"

POINTS = {
    "before write 1": ({}, ["", ""]),
    "after write 1": ({"recorded": 4}, ["", ""]),
    "after write 2": ({"settled": 1, "dispatched": 1, "recorded": 2}, [UNKNOWN, ""]),
    "before shell 1": ({"settled": 1, "dispatched": 1, "recorded": 2}, [UNKNOWN, ""]),
    "after shell 1": ({"settled": 1, "dispatched": 1, "recorded": 2}, [UNKNOWN, ""]),
    "before shell 2": ({"settled": 3, "dispatched": 1}, ["", UNKNOWN]),
    "before end 1": ({"settled": 3, "dispatched": 1}, ["", UNKNOWN]),
}
"""Where the executor ends; how many records it leaves at each stage, and how both commands of the system end."""

EFFECTS_MISSING = {"after write 2": 1, "before shell 1": 1, "before shell 2": 1}
"""How many effects have not happened, and are not made up for: nobody knows that they have not."""


def batch(name):
    """A failing call, a command of the system, an entry, and another command of the system."""
    echo = '=== call name=sh id=same ===\n{{"command": "echo {}.{} >> effects.txt"}}'
    return "\n".join(
        [
            "=== call name=get id=same ===\n" + '{"path": "none.txt"}',
            echo.format(name, 1),
            "=== call name=set id=same ===\n" + f'{{"path": "known://{name}", "body": "b"}}',
            echo.format(name, 2),
        ]
    )


@contextlib.asynccontextmanager
async def store_of(stack):
    client = StoreClient(stack.at("store0"), tier=Tier.SYSTEM)
    try:
        yield client
    finally:
        await client.close()


async def records(stack, name):
    """The records of the first turn, by their places in the reply."""
    async with store_of(stack) as store:
        page = await store.call("ListEntries", project=stack.project, run=name, pattern="log://turn_1/**")
    return sorted((one for one in page.entries if one.record.call_id), key=lambda one: one.record.ordinal)


async def begin(stack, life, name):
    """Give the run its task through the store, so that no answer is lost with the executor."""
    async with Client.connect(stack.at(life.name), SECRET) as client:
        # It is ready to count when it answers.
        await insisted(client.list_models)
    life.count()
    native = settings_pb2.RunSettings(model=name, calls=settings_pb2.CALL_STYLE_NATIVE)
    async with store_of(stack) as store:
        task = {"project": stack.project, "run": name, "prompt": "Do it.", "settings": act(model=name, yolo=True)}
        await store.call("EnqueueLoop", **task, run_settings=native)


@pytest.mark.asyncio
@pytest.mark.parametrize("point", POINTS)
async def test_every_native_call_has_one_result_wherever_the_executor_is_killed(stack, point):
    name = point.replace(" ", "-")
    left, outcomes = POINTS[point]
    first, second = (life for life in stack.lives.values() if life.service == "executor")
    for life in (first, second):
        if life.process:
            life.kill()
    await stack.add_model(name, batch(name), *['<update status="200">Done.</update>'] * 5)
    first.start(point)
    await begin(stack, first, name)
    assert await first.ended(within_s=60), "the executor did not come to its point"
    stages = [one.record.WhichOneof("stage") for one in await records(stack, name)]
    assert {stage: len(list(group)) for stage, group in itertools.groupby(sorted(stages))} == left

    second.start("last")
    async with Client.connect(stack.at(second.name), SECRET, policy=ENDURING) as client:
        loop = await insisted(lambda: client.wait_loop(stack.project, name, 1))
        told = [message async for message in client.list_messages(stack.project, name)]
    assert (loop.status, loop.turns) == (200, 2)

    made = await records(stack, name)
    assert [one.record.call_id for one in made] == [f"call_1_{place}" for place in range(4)]
    assert [one.outcome for one in made] == ["not_found:404", outcomes[0], "", outcomes[1]]
    effects = {line: count for line, count in stack.effects.items() if line.startswith(f"{name}.")}
    assert set(effects.values()) <= {1}
    assert len(effects) == 2 - EFFECTS_MISSING.get(point, 0)
    # What a transcript would be made of: each call once, and one answer to it.
    [reply] = [one.message for one in told if one.path == "assistant://1"]
    answers = [one.message.call_id for one in told if one.turn == 1 and one.message.call_id]
    assert [call.call_id for call in reply.calls] == sorted(answers) == [f"call_1_{place}" for place in range(4)]
