"""Each service is killed in the middle of what an editor does: its agent lives, and nothing is told or done twice.

A prompt goes on or ends as it was told to, a permission that was given holds or is asked for again, a session is loaded
once the services are back. Rows AG06, AG08, AG10.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from contract.acp.editors import connected
from contract.store.harness import SECRET
from crash.stack import AWAY, ENDURING, Stack
from turnwright_acp.agent import Agent
from turnwright_client import Client

DONE = '<update status="200">Done.</update>'
EFFECT = f"<sh>echo {{}} >> effects.txt</sh>{DONE}"
SAID = "\n\nDone."
WORDS = " ".join(f"word{number}" for number in range(100))
SERVICES = ("store0", "assembler", "provider", "executor0")

pytestmark = [pytest.mark.asyncio, pytest.mark.parametrize("service", SERVICES)]


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    made = Stack(tmp_path_factory.mktemp("stack"))
    asyncio.run(made.start())
    yield made
    made.close()


@asynccontextmanager
async def editing(stack, model, *replies, **timing):
    """An editor whose sessions have a model that gives these replies."""
    await stack.add_model(model, *replies, **timing)
    agent = Agent(lambda: Client.connect(stack.at("executor0"), SECRET, policy=ENDURING), model)
    async with connected(agent, stack.root / "project") as editor:
        yield editor


def again(stack, service):
    stack.lives[service].kill()
    stack.lives[service].start()


async def test_a_prompt_goes_on(stack, service):
    async with editing(stack, f"tells-{service}", WORDS + DONE, delay_ms=10) as editor:
        session = await editor.new()
        prompt = await editor.begin_prompt(session)
        await editor.until(lambda: editor.said(session))
        again(stack, service)
        assert (await prompt)["result"] == {"stopReason": "end_turn"}
        assert editor.said(session) == WORDS + SAID


async def test_a_permission_holds(stack, service):
    async with editing(stack, f"asks-{service}", EFFECT.format(service), *[DONE] * 5) as editor:
        editor.decide = lambda _: None
        session = await editor.new()
        prompt = await editor.begin_prompt(session)
        asked = await editor.until(lambda: editor.asked)
        stack.lives[service].kill()
        editor.decide = lambda _: "allow_once"
        await editor._answer(asked[0])
        stack.lives[service].start()
        assert (await prompt)["result"] == {"stopReason": "end_turn"}
        assert stack.effects[service] == 1
        assert "completed" in [one.get("status") for one in editor.updates(session, "tool_call_update")]
        assert len(editor.updates(session, "tool_call")) == 1


async def test_a_prompt_is_cancelled(stack, service):
    name = f"never-{service}"
    async with editing(stack, name, EFFECT.format(name), f"On.{DONE}") as editor:
        editor.decide = lambda _: None
        session = await editor.new()
        prompt = await editor.begin_prompt(session)
        await editor.until(lambda: editor.asked)
        stack.lives[service].kill()
        await editor.tell("session/cancel", sessionId=session)
        stack.lives[service].start()
        assert (await prompt)["result"] == {"stopReason": "cancelled"}
        await editor.until(lambda: editor.told("$/cancel_request"))
        assert editor.told("$/cancel_request") == [{"requestId": one["id"]} for one in editor.asked]
        editor.decide = lambda _: "reject_once"
        assert await editor.prompt(session) == {"stopReason": "end_turn"}
        assert stack.effects[name] == 0


@pytest.mark.parametrize("moment", ["before", "amid"])
async def test_a_session_is_loaded(stack, service, moment):
    async with editing(stack, f"told-{service}-{moment}", f"It is 4.{DONE}") as editor:
        session = await editor.new()
        await editor.prompt(session, "2 + 2?")
        start = len(editor.order)
        if moment == "before":
            stack.lives[service].kill()
        load = await editor.begin("session/load", editor.place(session))
        if moment == "before":
            stack.lives[service].start()
        else:
            await editor.until(lambda: texts(editor.order[start:]))
            again(stack, service)
        while "error" in (answer := await load):
            assert answer["error"]["data"]["reason"] in {reason.name for reason in AWAY}
            start = len(editor.order)
            load = await editor.begin("session/load", editor.place(session))
        assert texts(editor.order[start:]) == ["2 + 2?", "It is 4.", SAID]
        start = len(editor.order)
        assert await editor.prompt(session, "Are you sure?") == {"stopReason": "end_turn"}
        assert texts(editor.order[start:]) == ["It is 4.", SAID]


def texts(messages):
    """What was said, by both sides."""
    sent = [one["params"]["update"] for one in messages if one.get("method") == "session/update"]
    return [one["content"]["text"] for one in sent if one["sessionUpdate"].endswith("message_chunk")]
