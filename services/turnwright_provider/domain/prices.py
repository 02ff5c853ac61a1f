"""The cost of a call whose vendor does not report it, by the prices set for the model's alias.

Source: architecture 8 (usage); budgets of runs in US dollars.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from turnwright_values.types import Price

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
