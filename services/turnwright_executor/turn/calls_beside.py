"""Model calls beside those of the turns: for a title, and for a tool that asks. Made once, and never again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from msgspec import Struct
from turnwright_values.provider import Finish, Retry
from turnwright_values.types import Usage

from turnwright_core.errors import TurnwrightError
from turnwright_core.model_calls import GeneratePart
from turnwright_executor.turn.generation import Draft, may_cost


class CallBeside(Struct, frozen=True):
    """What has come of a call."""

    draft: Draft
    usage: Usage | None
    """What the vendor reported of all attempts; None if it has reported nothing and may want to be paid."""
    error: TurnwrightError | None = None
    """Why it has failed."""


async def call_beside(call: AbstractAsyncContextManager[AsyncIterator[GeneratePart]]) -> CallBeside:
    """Make a call to its end."""
    draft = Draft()
    try:
        async with call as events:
            async for event in events:
                _fold(draft, event)
    except TurnwrightError as error:
        return CallBeside(draft, _used(draft, is_charged=may_cost(draft, error)), error)
    return CallBeside(draft, _used(draft))


def _fold(draft: Draft, event: GeneratePart) -> None:
    if isinstance(event, Finish):
        draft.usage, draft.is_cut = event.usage or draft.usage, event.cut
    elif isinstance(event, Retry):
        draft.retried = (*draft.retried, event.usage) if event.usage else draft.retried
    else:
        draft.add(event)


def _used(draft: Draft, *, is_charged: bool = True) -> Usage | None:
    reports = [one for one in (*draft.retried, draft.usage) if one != Usage()]
    if not reports:
        return None if is_charged else Usage()
    costs = [one.cost_usd for one in reports if one.cost_usd is not None]
    return Usage(
        prompt_tokens=sum(one.prompt_tokens for one in reports),
        completion_tokens=sum(one.completion_tokens for one in reports),
        total_tokens=sum(one.total_tokens for one in reports),
        cost_usd=sum(costs) if costs else None,
    )
