"""Chats on two executors, and chats whose model calls are repeated or stopped."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest
import pytest_asyncio
from turnwright.types.v1 import session_command_pb2 as pb

from contract.executor.proposing import DONE, GO_ON, PROPOSAL, SET
from contract.executor.sessions import ACT, ASKING, named, say, state_of, told, until_state
from contract.executor.test_aborts import another_executor, with_vendor
from services import running
from sse_server import chat, error
from turnwright_client.sessions import user_message

pytestmark = pytest.mark.asyncio


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request, monkeypatch):
    """The database of the store."""
    if request.param == "postgresql":
        monkeypatch.setenv("TURNWRIGHT_DB", request.getfixturevalue("postgres_url"))


@pytest_asyncio.fixture
async def services(database, tmp_path, monkeypatch):
    """An executor that renews its leases so seldom that no renewal can notify it of a command in time."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, lease_s=60) as made:
        (made.files / "a.txt").write_text("old\n")
        yield made


async def states_until(client, project: str, last: str) -> list[str]:
    """The states that a watch reports up to one of them."""
    states = []
    async with asyncio.timeout(60), contextlib.aclosing(client.watch(project, "r")) as events:
        async for event in events:
            state = event.runtime_updated.state or (event.snapshot.state if event.snapshot.last else 0)
            if state:
                states.append(named(state))
            if states and states[-1] == last:
                return states
    raise AssertionError("the watch ended")


async def test_both_executors_say_the_same_and_take_the_same_commands(services):
    # RS01, RS08, RC10: an id that one has accepted is a duplicate at the other
    services.script(f"{SET}{GO_ON}", DONE)
    await say(services, "One.", ASKING, until="paused")
    async with another_executor(services) as other:
        watches = [
            asyncio.ensure_future(states_until(client, services.project, "completed"))
            for client in (services.client, other)
        ]
        states = [(await client.get_run(services.project, "r")).run.state for client in (services.client, other)]
        assert list(map(named, states)) == ["paused", "paused"]
        approval = pb.ApproveTools(calls=[PROPOSAL])
        first = await other.submit(services.project, "r", "a", approve_tools=approval)
        again = await services.client.submit(services.project, "r", "a", approve_tools=approval)
        assert (first.duplicate, again.duplicate) == (False, True)
        seen = await asyncio.gather(*watches)
    assert [one[0] for one in seen] == ["paused", "paused"]
    assert [one[-1] for one in seen] == ["completed", "completed"]


async def test_an_abort_keeps_what_was_streamed_and_the_queue_whoever_takes_it(services):
    # RC06
    words = " ".join(f"word{number}" for number in range(2000))
    (services.root / "slow.txt").write_text(f"=== reply chunk_chars=8 delay_ms=50 ===\n{words}\n")
    services.script(DONE)
    slow = pb.UserMessage()
    slow.CopyFrom(user_message("One.", settings=ACT))
    slow.settings.model = "scripted/slow"
    answer = await services.client.submit(services.project, "r", user_message=slow)
    async with contextlib.aclosing(services.client.watch(services.project, "r", answer.event_cursor)) as events:
        async for event in events:
            if event.HasField("stream_delta"):
                break
    await services.client.submit(services.project, "r", user_message=user_message("Two.", settings=ACT))
    async with another_executor(services) as other:
        async with asyncio.timeout(60):
            await other.submit(services.project, "r", abort=pb.AbortSession())
            await until_state(services, "completed")
    draft = await services.entry("assistant://1")
    assert (draft.status, draft.body.startswith("word0")) == (499, True)
    loops = (await services.client.get_run(services.project, "r")).loops
    assert [(loop.prompt, loop.status) for loop in reversed(loops)] == [("One.", 499), ("Two.", 200)]


async def test_a_run_is_never_idle_while_a_retry_waits(tmp_path, monkeypatch):
    # RS08
    limited, goes_on = error(429, "slow down", headers={"retry-after": "1"}), asyncio.Event()
    async with with_vendor(tmp_path, monkeypatch, limited, replace(chat(DONE), gate=goes_on)) as services:
        settings = pb.UserMessage()
        settings.CopyFrom(user_message("One.", settings=ACT))
        settings.settings.model = "tiny"
        answer = await services.client.submit(services.project, "r", user_message=settings)
        async with contextlib.aclosing(services.client.watch(services.project, "r", answer.event_cursor)) as events:
            async for event in events:
                if event.run_progress.HasField("wait"):
                    break
        assert await state_of(services) == {"generating"}
        goes_on.set()
        await until_state(services, "completed", cursor=answer.event_cursor)
        assert told(services) == ["completed"]
