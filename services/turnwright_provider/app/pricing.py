"""Prices of calls: that of the alias, or else the vendors' list prices.

List prices come from the package genai-prices, an extra. It is imported with the first call that needs it, and applies
only to vendors at their own address: other servers of the same model have other prices.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.runs import Usage
from turnwright_provider.domain.costs import Cost, cost_usd
from turnwright_provider.domain.presets import is_own_address
from turnwright_provider.domain.prices import PRICE_PREFIX, Price

TABLE_NAMES: Final[Mapping[str, str]] = {"gemini": "google", "xai": "x-ai"}
"""Vendors that the table knows by another name."""


async def cost_of_call(prices: Mapping[str, Price], alias: str, vendor: str, model: str, endpoint: str) -> Cost | None:
    """A function for the cost of a call; None if no price is known. `endpoint` is the URL that is called."""
    if price := prices.get(alias):
        return partial(cost_usd, price=price)
    if not is_own_address(vendor, endpoint):
        return None
    cost = partial(table_cost_usd, vendor=vendor, model=model)
    return None if await asyncio.to_thread(cost, Usage()) is None else cost


def unpriced(alias: str, vendor_model: str) -> TurnwrightError:
    """The error for a call that must have a price and has none."""
    named = alias if alias and "/" not in alias else "<alias>"
    return fault(
        Reason.VENDOR_REJECTED,
        f"No price is known for {vendor_model}, and a limit of cost needs one: set {PRICE_PREFIX}{named} where the "
        "provider runs (US dollars for a million tokens, input/cached/output), or go without the limit.",
        vendor=vendor_model.partition("/")[0],
        detail="cost",
    )


def table_cost_usd(usage: Usage, *, vendor: str, model: str) -> float | None:
    """US dollars according to the table; None if it does not know the model, or is not installed."""
    genai_prices = _table()
    if genai_prices is None:
        return None
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    figures = genai_prices.Usage(
        input_tokens=usage.prompt_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=min(usage.cache_write_tokens, usage.prompt_tokens - cached),
        output_tokens=usage.completion_tokens,
    )
    try:
        return float(genai_prices.calc_price(figures, model, provider_id=TABLE_NAMES.get(vendor, vendor)).total_price)
    except (LookupError, ValueError, ArithmeticError):
        return None


def table_window(vendor: str, model: str) -> int:
    """A model's context window in tokens according to the table; 0 if it does not know, or is not installed."""
    genai_prices = _table()
    if genai_prices is None:
        return 0
    try:
        found = genai_prices.calc_price(genai_prices.Usage(), model, provider_id=TABLE_NAMES.get(vendor, vendor))
    except (LookupError, ValueError, ArithmeticError):
        return 0
    return found.model.context_window or 0


def _table() -> Any:
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices
