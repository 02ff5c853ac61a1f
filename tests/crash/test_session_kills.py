"""An executor is killed at steps of its work while a chat gets commands, each of which is repeated under its id.

Whatever was answered happened once, and what waited is carried out in its place. Rows RS08, RC10, RC11; ADR 40.
"""

import asyncio
import contextlib

import pytest
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright.types.v1 import settings_pb2

from contract.store.harness import SECRET
from crash.stack import ENDURING, Stack, insisted
from turnwright_client import Client
from turnwright_client.sessions import user_message
from turnwright_core.runs import SessionState

POINTS = (
    "before begin 1",
    "amid generate 1",
    "after write 1",
    "before end 1",
    "after end 1",
    "after end 2",
    "after release 1",
)
REPLIES = (
    '<set path="known://n">1</set><update status="102">On.</update>',
    '<update status="200">All is done.</update>',
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def stack(request, tmp_path_factory):
    """What these tests need is a stack, not one of their own."""
    databases = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    url = databases.take() if databases else ""
    made = Stack(tmp_path_factory.mktemp("stack"), url)
    asyncio.run(made.start())
    yield made
    made.close()
    if databases:
        databases.give_back(url)


def commands() -> list[tuple[str, dict]]:
    settings = settings_pb2.LoopSettings(model="chat", yolo=True, mode=settings_pb2.MODE_ACT)
    return [
        ("one", {"user_message": user_message("One.", settings=settings)}),
        ("two", {"user_message": user_message("Two.")}),
        ("again", {"regenerate": pb.Regenerate()}),
        ("draft", {"set_draft": pb.SetDraft(text="Later.")}),
    ]


async def submitted(stack, client, run: str) -> list[bool]:
    """Give the run its commands; whether each was accepted before."""
    return [
        (
            await insisted(lambda name=name, kind=kind: client.submit(stack.project, run, f"{run} {name}", **kind))
        ).duplicate
        for name, kind in commands()
    ]


async def until_completed(stack, client, run: str) -> list[str]:
    """The states that are told until the last loop has ended."""
    states = []
    async with asyncio.timeout(60), contextlib.aclosing(client.watch(stack.project, run)) as events:
        async for event in events:
            state = event.runtime_updated.state or (event.snapshot.state if event.snapshot.last else 0)
            if state:
                states.append(SessionState(state).name.lower())
            if states and states[-1] == "completed":
                return states
    raise AssertionError("the watch ended")


@pytest.mark.asyncio
@pytest.mark.parametrize("point", POINTS)
async def test_commands_happen_once_wherever_the_executor_is_killed(stack, point):
    run, life = point.replace(" ", "-"), stack.lives["executor0"]
    await stack.add_model("chat", *REPLIES)
    life.kill()
    life.start(point)
    async with Client.connect(stack.at("executor0"), SECRET, policy=ENDURING) as client:
        await insisted(client.discover)
        dying = asyncio.ensure_future(life.ended(30))
        giving = asyncio.ensure_future(submitted(stack, client, run))
        assert await dying
        life.start()
        await giving
        assert await submitted(stack, client, run) == [True] * 4
        states = await until_completed(stack, client, run)
        assert "idle" not in states
        found = await insisted(lambda: client.get_run(stack.project, run))
        messages = [message async for message in client.list_messages(stack.project, run)]
        draft = await client.get_entry(stack.project, run, "draft://main")
        assert await client.list_commands(stack.project, run) == []
    loops = [(loop.prompt, loop.status) for loop in reversed(found.loops)]
    assert loops == [("One.", 200), ("Two.", 200), ("Two.", 200)]
    prompts = [one.message.parts[0].text for one in messages if one.path.startswith("prompt://")]
    assert prompts == ["One.", "Two."]
    assert draft.body == "Later."
