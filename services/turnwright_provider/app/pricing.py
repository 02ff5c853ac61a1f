"""Prices of calls: that of the alias, set here or with the model, or else the vendors' list prices.

List prices come from the package genai-prices, an extra. It is imported with the first call that needs it, and applies
only to vendors at their own address: other servers of the same model have other prices.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from msgspec.structs import replace
from turnwright_values.provider import Finish, Retry
from turnwright_values.types import Price, Usage

from turnwright_core.chat.deltas import SetUsage
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.model_calls import GeneratePart
from turnwright_provider.domain.model_call import ReplyPart, was_cut
from turnwright_provider.domain.presets import is_own_address
from turnwright_provider.domain.usage import PRICE_PREFIX

TOKENS: Final = 1_000_000
"""Prices are per this many tokens."""

Cost = Callable[[Usage], float | None]
"""What a consumption costs, in US dollars; None where that is not known."""

TABLE_NAMES: Final[Mapping[str, str]] = {"gemini": "google", "xai": "x-ai"}
"""Vendors that the table knows by another name."""


def priced(part: ReplyPart, cost: Cost | None) -> GeneratePart:
    """A part of a reply as it is sent: its cost is computed if the vendor does not report one."""
    if isinstance(part, Finish):
        usage = part.usage and _priced(part.usage, cost)
        return replace(part, usage=usage, cut=was_cut(part))
    if isinstance(part, Retry):
        return replace(part, usage=part.usage and _priced(part.usage, cost))
    return SetUsage(_priced(part.usage, cost)) if isinstance(part, SetUsage) else part


def _priced(usage: Usage, cost: Cost | None) -> Usage:
    return usage if cost is None or usage.cost_usd is not None else replace(usage, cost_usd=cost(usage))


def cost_usd(usage: Usage, price: Price) -> float:
    """Cost in US dollars; cached tokens are part of the prompt's."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    fresh = usage.prompt_tokens - cached
    spent = fresh * price.input_usd + cached * price.cached_usd + usage.completion_tokens * price.output_usd
    return spent / TOKENS


async def cost_of_call(
    prices: Mapping[str, Price], alias: str, vendor: str, model: str, endpoint: str, own: Price | None = None
) -> Cost | None:
    """A function for the cost of a call; None if no price is known. `endpoint` is the URL that is called.

    `own` is the price that the model has; one of `prices` goes before.
    """
    if price := prices.get(alias, own):
        return partial(cost_usd, price=price)
    if not is_own_address(vendor, endpoint):
        return None
    cost = partial(table_cost_usd, vendor=vendor, model=model)
    return None if await asyncio.to_thread(cost, Usage()) is None else cost


def unpriced(alias: str, vendor_model: str) -> TurnwrightError:
    """The error for a call that must have a price and has none."""
    named = alias if alias and "/" not in alias else "ALIAS"
    return fault(
        Reason.VENDOR_REJECTED,
        f"No price is known for {vendor_model}, and a limit of cost needs one: `turnwright models add {named} "
        f"{vendor_model} --price IN/CACHED/OUT` (US dollars for a million tokens), then use {named}; or set "
        f"{PRICE_PREFIX}{named} where the provider runs, or go without the limit.",
        vendor=vendor_model.partition("/")[0],
        detail="cost",
    )


def table_cost_usd(usage: Usage, *, vendor: str, model: str) -> float | None:
    """US dollars according to the table; None if it does not know the model, or is not installed."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    price = _table_price(
        vendor,
        model,
        input_tokens=usage.prompt_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=min(usage.cache_write_tokens, usage.prompt_tokens - cached),
        output_tokens=usage.completion_tokens,
    )
    return None if price is None else float(price.total_price)


def table_window(vendor: str, model: str) -> int:
    """A model's context window in tokens according to the table; 0 if it does not know, or is not installed."""
    price = _table_price(vendor, model)
    return price.model.context_window or 0 if price else 0


def _table_price(vendor: str, model: str, **figures: int) -> Any:
    try:
        import genai_prices

        return genai_prices.calc_price(
            genai_prices.Usage(**figures), model, provider_id=TABLE_NAMES.get(vendor, vendor)
        )
    except (ImportError, LookupError, ValueError, ArithmeticError):
        return None
