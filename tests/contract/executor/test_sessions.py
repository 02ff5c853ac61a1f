"""Sessions: what a run is doing, as everybody tells it."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from turnwright.types.v1 import settings_pb2
from turnwright.types.v1.session_command_pb2 import (
    DECISION_SCOPE_RUN,
    AbortSession,
    ApproveTools,
    RejectTools,
)

from contract.executor.proposing import DONE, GO_ON, PROPOSAL, SET
from contract.executor.sessions import ACT, ASKING, named, say, state_of, told, until_state
from contract.executor.shared_stack import ON_BOTH_DATABASES, SHARED_SERVICES
from turnwright_client.sessions import user_message

pytestmark = ON_BOTH_DATABASES
services = SHARED_SERVICES


async def test_a_message_opens_a_session_that_ends_completed_by_an_update(services):
    # RS01, RS02, RS03, RS10
    services.script(DONE)
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ACT))
    assert named(answer.run.state) == "generating"
    assert answer.loop.sequence == 1
    await until_state(services, "completed", cursor=answer.event_cursor)
    assert told(services) == ["completed"]
    assert await state_of(services) == {"completed"}


@pytest.mark.parametrize(
    ("replies", "state"),
    [
        (["Just text."], "idle"),
        (['<update status="422">It cannot be done.</update>'], "completed"),
        (['<update status="204"/>'], "completed"),
        ([DONE], "completed"),
        ([f'<rm path="none.txt"/>{GO_ON}', "Removed it."], "error"),
        (["=== error server ==="], "error"),
    ],
)
async def test_the_end_of_a_loop_decides_what_a_session_is_then(services, replies, state):
    # RS03, RS10
    services.script(*replies)
    if replies[0].startswith("==="):
        (services.root / "m.txt").unlink()
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ACT))
    await until_state(services, state, cursor=answer.event_cursor)
    assert await state_of(services) == {state}


async def test_an_aborted_session_is_idle(services):
    # RS10
    services.script(f"{SET}{GO_ON}", DONE)
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ASKING))
    await until_state(services, "paused", cursor=answer.event_cursor)
    stopped = await services.client.submit(services.project, "r", abort=AbortSession())
    await until_state(services, "idle", cursor=stopped.event_cursor)
    assert await state_of(services) == {"idle"}


async def test_a_session_whose_context_does_not_fit_is_in_error(services):
    # RS10
    services.script(DONE)
    limits = settings_pb2.RunSettings(model="m", context_limit=2000)
    await services.client.create_run(services.project, "r", limits)
    message = user_message("word " * 20_000, settings=ACT)
    answer = await services.client.submit(services.project, "r", user_message=message)
    await until_state(services, "error", cursor=answer.event_cursor)
    assert (await services.client.get_run(services.project, "r")).run.loop.status == 413


async def test_a_proposal_pauses_and_a_decision_goes_on(services):
    # RS04, RS06, RS09: nothing is told twice
    services.script(f"{SET}{GO_ON}", DONE)
    answer = await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ASKING))
    await until_state(services, "paused", cursor=answer.event_cursor)
    assert await state_of(services) == {"paused"}
    decided = await services.client.submit(services.project, "r", approve_tools=approve(PROPOSAL))
    await until_state(services, "completed", cursor=decided.event_cursor)
    states = told(services)
    assert states[-1] == "completed"
    assert all(one != other for one, other in itertools.pairwise(states))


def approve(*calls: str, answer: str = ""):
    return ApproveTools(calls=calls, answer=answer)


# ---- Decisions for the whole run


SHELL = "<sh>echo {}</sh>"


async def test_an_approval_for_the_run_holds_for_what_is_like_it_later(own_services):
    # RC07: in the same reply, in the next turn, and after a restart
    own_services.script(f"{SHELL.format(1) * 2}{GO_ON}", f"{SHELL.format(1)}{GO_ON}", DONE)
    await say(own_services, "Do it.", ASKING, until="paused")
    [first] = own_services.view().proposals
    approved = ApproveTools(calls=[first], scope=DECISION_SCOPE_RUN)
    await say(own_services, "", approve_tools=approved, until="completed")
    [rule] = await own_services.client.list_rules(own_services.project, "r")
    assert (rule.verdict, rule.tool, rule.target, rule.by) == (1, "sh", "echo 1", "operator")
    await own_services.restart("executor")
    own_services.script(f"{SHELL.format(1)}{GO_ON}", DONE)
    await say(own_services, "Again.", until="completed")
    records = [entry async for entry in own_services.client.list_entries(own_services.project, "r", "log://**/sh/*")]
    assert [entry.status for entry in records] == [200] * 4


async def test_a_rejection_for_the_run_is_read_by_the_model_which_goes_on(services):
    # RC07
    services.script(f"{SHELL.format(1)}{GO_ON}", f"{SHELL.format(1)}{GO_ON}", DONE)
    await say(services, "Do it.", ASKING, until="paused")
    [first] = services.view().proposals
    rejected = RejectTools(calls=[first], scope=DECISION_SCOPE_RUN, reason="Not here.")
    await say(services, "", reject_tools=rejected, until="completed")
    records = [entry async for entry in services.client.list_entries(services.project, "r", "log://**/sh/*")]
    assert [(entry.outcome, entry.body.split(":")[0]) for entry in records] == [
        ("rejected:403", "Not here."),
        ("rejected:403", "Nobody was asked"),
    ]
    [rule] = await services.client.list_rules(services.project, "r")
    await services.client.delete_rule(services.project, rule.id, "r")
    services.script(f"{SHELL.format(1)}{GO_ON}", DONE)
    await say(services, "Again.", until="paused")


async def test_a_list_of_runs_that_is_watched_follows_what_they_are_doing(services):
    # RS01: also where no row of the run is written, as when commands are carried out
    services.script(f"<sh>while [ ! -e go ]; do sleep 0.1; done</sh>{GO_ON}", DONE)
    states = []
    async with contextlib.aclosing(services.client.watch_runs(services.project)) as messages:
        await services.client.submit(services.project, "r", user_message=user_message("Do it.", settings=ACT))
        async for message in messages:
            changed = (*message.changed.created, *message.changed.updated)
            states += [named(one.run.state) for one in (*message.snapshot.runs, *changed)]
            if states and states[-1] == "executing_tools":
                (services.files / "go").touch()
            if states and states[-1] == "completed":
                break
    assert "executing_tools" in states
