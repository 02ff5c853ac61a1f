"""The values of settings: text of a variable, or a value of the right type, to what a setting holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

SWITCH: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
"""Words for a switch, in any letter case."""


def parsed(kind: Any, value: object) -> Any:
    """A value of a kind: str, int, float, bool, Path or a Literal of words. Raises ValueError."""
    if get_origin(kind) is Literal:
        return _choice(get_args(kind), value)
    return _PARSERS[kind](value)


def _choice(words: tuple[Any, ...], value: object) -> object:
    if value not in words:
        raise ValueError(f"must be {', '.join(words[:-1])} or {words[-1]}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004 - one kind of error for whatever is wrong with a setting
    return value


def _switch(value: object) -> bool:
    found = value if isinstance(value, bool) else SWITCH.get(str(value).lower())
    if found is None:
        raise ValueError("must be true or false")
    return found


def _whole_number(value: object) -> int:
    try:
        # What `int` takes beside digits, such as 1_000, is nothing that a variable should say.
        if isinstance(value, str) and value.strip("+-").isascii() and "_" not in value:
            return int(value)
    except ValueError:
        pass
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("must be a whole number")


def _number(value: object) -> float:
    try:
        found = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError("must be a number")
    return found


def _path(value: object) -> Path:
    if not isinstance(value, str | Path):
        raise ValueError("must be a path")  # noqa: TRY004 - as above
    return Path(value)


_PARSERS: Final[dict[Any, Callable[[object], Any]]] = {
    str: _text,
    int: _whole_number,
    float: _number,
    bool: _switch,
    Path: _path,
}
