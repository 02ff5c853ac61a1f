"""Calls that a client repeats, because the answer was lost: their cursors still lead to what the first one caused."""

import asyncio
import contextlib

import pytest

from contract.executor.proposing import DONE, PROPOSAL, SET
from contract.executor.sessions import ACT, ASKING
from turnwright_client.client import loop_in
from turnwright_client.sessions import user_message

pytestmark = pytest.mark.asyncio


async def ended_after(services, cursor) -> int:
    """The status with which the run's first loop ended, as a watch from the cursor tells."""
    async with asyncio.timeout(30), contextlib.aclosing(services.client.watch(services.project, "r", cursor)) as events:
        async for event in events:
            loop = loop_in(event)
            if loop and loop.sequence == 1 and loop.status in (200, 499):
                return loop.status
    raise AssertionError("the watch ended")


@pytest.mark.parametrize("is_restarted", [False, True], ids=["same executor", "another executor"])
async def test_a_task_that_was_given_already_and_has_ended_can_be_waited_for(services, is_restarted) -> None:
    services.script(DONE)

    async def give():
        return await services.client.act(services.project, "Do it.", run="r", settings=ACT, request_id="given before")

    await services.until(await give())
    if is_restarted:
        await services.restart("executor")
    again = await give()
    assert again.sequence == 1
    assert await ended_after(services, again.cursor) == 200


async def test_a_decision_that_was_made_already_can_be_followed(services) -> None:
    services.script(SET + DONE, DONE)
    (services.files / "a.txt").write_text("old\n")
    first = await services.client.act(services.project, "Do it.", run="r", settings=ASKING)
    await services.until(first, 202)

    async def decide():
        return await services.client.resolve(services.project, "r", PROPOSAL, accept=True, request_id="decided before")

    assert await ended_after(services, (await decide()).event_cursor) == 200
    assert await ended_after(services, (await decide()).event_cursor) == 200


async def test_a_message_that_was_sent_already_can_be_followed(services) -> None:
    services.script(DONE)

    async def send():
        return await services.client.submit(
            services.project, "r", "sent before", user_message=user_message("Do it.", settings=ACT)
        )

    assert await ended_after(services, (await send()).event_cursor) == 200
    answer = await send()
    assert answer.duplicate
    assert await ended_after(services, answer.event_cursor) == 200


async def test_an_abort_that_was_requested_already_can_be_followed(services) -> None:
    services.script(SET + DONE)
    (services.files / "a.txt").write_text("old\n")
    first = await services.client.act(services.project, "Do it.", run="r", settings=ASKING)
    await services.until(first, 202)
    for _ in range(2):
        answer = await services.client.abort(services.project, "r", request_id="aborted before")
        assert await ended_after(services, answer.event_cursor) == 499
