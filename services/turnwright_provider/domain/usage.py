"""Usage: normalizes any vendor's usage object, and says what it costs.

Nearly all vendors count reasoning as part of the output; xAI's chat counts it separately, which its total gives away.
Anthropic counts cache reads and writes separately from the input; its field names in a chat completion's usage count
parts of the prompt. Google counts reasoning, and input of its own tools, separately. Over a stream each figure is the
maximum so far, and the total is recomputed. Source: RD05; research/wire 2.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from turnwright_values.types import Price, Usage

from turnwright_core.json_text import JsonMapping

TICK_USD: Final = 1e-10
"""xAI's `cost_in_usd_ticks`, in US dollars."""

COST_USD_MAX: Final = 1e9
"""Upper limit for the cost of a call: figures beyond are invalid, such as Infinity, which some servers write."""

_PROMPT: Final = ("prompt_tokens", "input_tokens", "prompt_eval_count", "promptTokenCount")
_COMPLETION: Final = ("completion_tokens", "output_tokens", "eval_count", "candidatesTokenCount")
_CACHED: Final = (
    "prompt_tokens_details.cached_tokens",
    "input_tokens_details.cached_tokens",
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "cache_read_input_tokens",
    "cachedContentTokenCount",
)
_CACHE_WRITE: Final = (
    "prompt_tokens_details.cache_write_tokens",
    "input_tokens_details.cache_write_tokens",
    "cache_creation_input_tokens",
)
_BESIDE: Final = ("cache_read_input_tokens", "cache_creation_input_tokens", "toolUsePromptTokenCount")
_REASONING: Final = (
    "completion_tokens_details.reasoning_tokens",
    "output_tokens_details.reasoning_tokens",
    "output_tokens_details.thinking_tokens",
    "reasoning_tokens",
    "thoughtsTokenCount",
)

_REPORTED: Final = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cache_write_tokens")


def read_usage(raw: JsonMapping) -> Usage:
    """The usage of one report; missing or invalid figures are 0."""
    prompt, completion = _figure(raw, _PROMPT), _figure(raw, _COMPLETION)
    if "prompt_tokens" not in raw:
        prompt += sum(_figure(raw, (name,)) for name in _BESIDE)
    reasoning = _figure(raw, _REASONING)
    is_beside = _figure(raw, ("total_tokens",)) == prompt + completion + reasoning or "thoughtsTokenCount" in raw
    if reasoning and is_beside:
        completion += reasoning
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=_figure(raw, _CACHED),
        completion_tokens=completion,
        reasoning_tokens=reasoning,
        total_tokens=prompt + completion,
        cost_usd=_cost(raw),
        cache_write_tokens=_figure(raw, _CACHE_WRITE),
    )


def merge_usage(old: Usage | None, new: Usage) -> Usage:
    """The maximum of each figure, the recomputed total, and the latest cost."""
    if old is None:
        return new
    highest = {name: max(getattr(old, name), getattr(new, name)) for name in _REPORTED}
    total, cost = highest["prompt_tokens"] + highest["completion_tokens"], new.cost_usd
    return Usage(total_tokens=total, cost_usd=old.cost_usd if cost is None else cost, **highest)


def _figure(raw: JsonMapping, names: tuple[str, ...]) -> int:
    for name in names:
        value = _at(raw, name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**53:
            return int(value)
    return 0


def _cost(raw: JsonMapping) -> float | None:
    cost = raw.get("cost")
    if isinstance(cost, dict):
        cost = cost.get("total_cost")
    price = _price(cost)
    if price is None and isinstance(ticks := raw.get("cost_in_usd_ticks"), int):
        price = _price(ticks)
        return None if price is None else price * TICK_USD
    return price


def _price(value: object) -> float | None:
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        price = float(value)
    except (ValueError, OverflowError):
        return None
    return price if 0 <= price < COST_USD_MAX else None


def _at(raw: JsonMapping, dotted: str) -> object:
    value: object = raw
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


PRICE_PREFIX: Final = "TURNWRIGHT_PRICE_"
"""Variables with the price of a model begin so; its alias follows."""

_NUMBER: Final = re.compile(r"\d{1,6}(?:\.\d{1,9})?")
_FORM: Final = "must be US dollars for a million tokens of input, cached input and output, such as 2.5/0.25/10"


def parse_price(text: str) -> Price:
    """Parse `input/cached/output`, or `input/output` if cached input costs the same. Raises ValueError."""
    parts = [part.strip() for part in text.split("/")]
    if len(parts) not in (2, 3) or not all(_NUMBER.fullmatch(part) for part in parts):
        raise ValueError(f"{_FORM}; it is {text!r}")
    numbers = [float(part) for part in parts]
    return Price(numbers[0], numbers[-2], numbers[-1])


def read_prices(environment: Mapping[str, str], prefix: str) -> dict[str, Price]:
    """Prices by alias, from variables with this prefix. Raises ValueError with a line for each wrong variable."""
    prices: dict[str, Price] = {}
    wrong: list[str] = []
    for variable in sorted(environment):
        try:
            prices[variable.removeprefix(prefix)] = parse_price(environment[variable])
        except ValueError as error:
            wrong.append(f"{variable}: {error}")
    if wrong:
        raise ValueError("\n".join(wrong))
    return prices
