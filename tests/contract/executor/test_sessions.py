"""Sessions: what a run is doing, as everybody tells it."""

from __future__ import annotations

import itertools

import pytest
from turnwright.types.v1.session_command_pb2 import ApproveTools

from contract.executor.proposing import DONE, GO_ON, PROPOSAL, SET
from contract.executor.sessions import ACT, ASKING, named, state_of, told, until_state
from turnwright_client.sessions import user_message

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True, params=["sqlite", "postgresql"])
def database(request, monkeypatch):
    """The database of the store."""
    if request.param == "postgresql":
        monkeypatch.setenv("TURNWRIGHT_DB", request.getfixturevalue("postgres_url"))


async def test_a_message_opens_a_session_that_ends_completed_by_an_update(services):
    # RS01, RS02, RS03, RS10
    services.script(DONE)
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ACT))
    assert named(answer.run.state) == "generating"
    assert answer.loop.sequence == 1
    await until_state(services, "completed", cursor=answer.cursor)
    assert told(services) == ["completed"]
    assert await state_of(services) == {"completed"}


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
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ACT))
    await until_state(services, state, cursor=answer.cursor)
    assert await state_of(services) == {state}


async def test_a_proposal_pauses_and_a_decision_goes_on(services):
    # RS04, RS06, RS09: nothing is told twice
    services.script(f"{SET}{GO_ON}", DONE)
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ASKING))
    await until_state(services, "paused", cursor=answer.cursor)
    assert await state_of(services) == {"paused"}
    decided = await services.client.submit(services.project, "r", approve_tools=approve(PROPOSAL))
    await until_state(services, "completed", cursor=decided.cursor)
    states = told(services)
    assert states[-1] == "completed"
    assert all(one != other for one, other in itertools.pairwise(states))


def approve(*calls: str, answer: str = ""):
    return ApproveTools(calls=calls, answer=answer)
