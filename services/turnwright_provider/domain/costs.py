"""The cost of a call whose vendor does not report it. Source: architecture 8 (usage); budgets of runs in US dollars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from turnwright_core.chat.deltas import SetUsage
from turnwright_core.runs import Usage
from turnwright_provider.domain.model_call import Finish, ReplyPart
from turnwright_provider.domain.prices import Price

TOKENS: Final = 1_000_000
"""Prices are per this many tokens."""

Cost = Callable[[Usage], float | None]
"""What a consumption costs, in US dollars; None where that is not known."""


def with_cost(part: ReplyPart, cost: Cost | None) -> ReplyPart:
    """A part of a reply, with its cost computed if the vendor does not report one."""
    if cost is None or not isinstance(part, SetUsage | Finish) or part.usage is None:
        return part
    usage = part.usage
    return part if usage.cost_usd is not None else replace(part, usage=replace(usage, cost_usd=cost(usage)))


def cost_usd(usage: Usage, price: Price) -> float:
    """Cost in US dollars; cached tokens are part of the prompt's."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    fresh = usage.prompt_tokens - cached
    spent = fresh * price.input_usd + cached * price.cached_usd + usage.completion_tokens * price.output_usd
    return spent / TOKENS
