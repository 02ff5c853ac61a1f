"""Sessions: what a run is doing, as everybody tells it."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from turnwright.types.v1 import settings_pb2
from turnwright.types.v1.session_command_pb2 import ApproveTools

from contract.executor.proposing import DONE, GO_ON, PROPOSAL, SET
from turnwright_client.sessions import user_message
from turnwright_core.runs import SessionState

pytestmark = pytest.mark.asyncio

ALL = settings_pb2.LoopSettings(model="m", yolo=True, mode=settings_pb2.MODE_ACT)
ASKING = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT)


def named(state) -> str:
    return SessionState(state).name.lower()


async def state_of(services, run: str = "r") -> set[str]:
    """What GetRun, ListRuns and a new watch tell."""
    one = (await services.client.get_run(services.project, run)).run.state
    listed = [run_.state async for run_ in services.client.list_runs(services.project) if run_.run == run]
    async with contextlib.aclosing(services.client.watch(services.project, run)) as events:
        async for event in events:
            if event.HasField("snapshot") and event.snapshot.last:
                return {named(one), *map(named, listed), named(event.snapshot.state)}
    raise AssertionError("the watch ended")


def told(services) -> list[str]:
    return [named(event.runtime_updated.state) for event in services.events if event.HasField("runtime_updated")]


async def test_a_message_opens_a_session_that_ends_completed_by_an_update(services):
    # RS01, RS02, RS03, RS10
    services.script(DONE)
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ALL))
    assert named(answer.run.state) == "generating"
    assert answer.loop.sequence == 1
    await until_state(services, "completed", answer.cursor)
    assert told(services) == ["completed"]
    assert await state_of(services) == {"completed"}


async def until_state(services, state: str, cursor=None, run: str = "r") -> None:
    """Watch from the cursor on until the run is at a state; the events are kept."""
    async with contextlib.aclosing(services.client.watch(services.project, run, cursor)) as events:
        async for event in events:
            services.events.append(event)
            if event.HasField("runtime_updated") and named(event.runtime_updated.state) == state:
                return
            if event.HasField("snapshot") and event.snapshot.last and named(event.snapshot.state) == state:
                return
    raise AssertionError("the watch ended")


@pytest.mark.parametrize(
    ("replies", "state"),
    [
        (["Just text."], "idle"),
        (['<update status="422">It cannot be done.</update>'], "completed"),
        (['<update status="204"/>'], "completed"),
        (["=== error server ==="], "error"),
    ],
)
async def test_the_end_of_a_loop_decides_what_a_session_is_then(services, replies, state):
    # RS03, RS10
    services.script(*replies)
    if replies[0].startswith("==="):
        (services.root / "m.txt").unlink()
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ALL))
    await until_state(services, state, answer.cursor)
    assert await state_of(services) == {state}


async def test_a_proposal_pauses_and_a_decision_goes_on(services):
    # RS04, RS06, RS09: nothing is told twice
    services.script(f"{SET}{GO_ON}", DONE)
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ASKING))
    await until_state(services, "paused", answer.cursor)
    assert await state_of(services) == {"paused"}
    decided = await services.client.submit(services.project, "r", approve_tools=approve(PROPOSAL))
    await until_state(services, "completed", decided.cursor)
    states = told(services)
    assert states[-1] == "completed"
    assert all(one != other for one, other in itertools.pairwise(states))


def approve(*calls: str, answer: str = ""):
    return ApproveTools(calls=calls, answer=answer)
