"""What clients change of a run while it works, each in its own name."""

from __future__ import annotations

import json

import pytest
from turnwright.executor.v1 import task_pb2
from turnwright.types.v1 import settings_pb2

from contract.executor.proposing import DONE, GO_ON, PROPOSAL, SET, person, waiting
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio

FORK = task_pb2.TaskFork(run="child")


# ---- Forks for a task


@pytest.mark.parametrize(
    ("prompt", "model", "reason"),
    [
        ("", "m", Reason.INVALID_FIELD),
        ("x" * (1024 * 1024 + 1), "m", Reason.LIMIT_EXCEEDED),
        ("Do it.", "none", Reason.MODEL_NOT_FOUND),
    ],
    ids=["no prompt", "a long prompt", "no such model"],
)
async def test_a_refused_task_leaves_no_fork_behind(services, prompt, model, reason):
    # RU231; architecture 3: a refused command stores nothing
    services.script(DONE, DONE)
    await services.until(await services.act())
    settings = settings_pb2.LoopSettings(model=model)
    with pytest.raises(TurnwrightError) as refused:
        await services.client.act(services.project, prompt, run="r", settings=settings, fork=FORK)
    assert refused.value.reason is reason
    assert [run.run async for run in services.client.list_runs(services.project)] == ["r"]
    settings.model = "m"
    queued = await services.client.act(services.project, "Do it.", run="r", settings=settings, fork=FORK)
    assert queued.run == "child"


# ---- Settings


async def test_settings_that_change_while_a_loop_waits_hold_from_the_next_turn_on(services):
    # RU232, RC02; C48: the open turn keeps what it began with
    settings = settings_pb2.RunSettings(model="m", temperature=0.25)
    await services.client.create_run(services.project, "r", settings)
    queued = await waiting(services, f"{SET}{GO_ON}", GO_ON, DONE)
    patch = settings_pb2.RunSettingsPatch(temperature=0.75, context_limit=20_000)
    await services.client.configure_run(services.project, "r", patch)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=True)
    await services.until(queued)
    services.script(DONE)
    await services.until(await services.act("Go on."))
    answer = await services.client.get_run(services.project, "r", turns_max=10)
    told = [(turn.loop, turn.request.temperature) for turn in reversed(answer.turns)]
    assert told == [(1, 0.25), (1, 0.75), (1, 0.75), (2, 0.75)]
    lengths = [turn.request.context_length for turn in reversed(answer.turns)]
    assert lengths == [32_768, 20_000, 20_000, 20_000]
    assert answer.turns[0].request.context_length == 20_000


# ---- Principals


async def test_the_same_request_id_of_two_clients_is_two_requests(services):
    # architecture 3 (idempotency), 10 (forwarded calls carry the client's principal)
    services.script(DONE, DONE, DONE)
    settings = settings_pb2.LoopSettings(model="m")
    async with person(services, "alice") as alice, person(services, "bob") as bob:
        queued = [
            await client.act(services.project, "Do it.", run="r", settings=settings, request_id="1")
            for client in (alice, bob, alice)
        ]
    assert [one.sequence for one in queued] == [1, 2, 1]


async def test_a_message_says_who_sent_it(services):
    # RU232; architecture 10
    services.script(DONE)
    await services.until(await services.act())
    async with person(services, "alice") as alice:
        told = await alice.inject_message(services.project, "r", "Mind the gap.")
    assert json.loads((await services.entry(told.path)).attributes_json)["principal"] == "alice"
