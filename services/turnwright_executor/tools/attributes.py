"""Attributes of commands that several tools understand: visibility, summary, line and limit."""

from __future__ import annotations

import re
from typing import Final

from turnwright_values.types import Entry, Visibility

from turnwright_core.limits import SUMMARY_CHARS_MAX
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.tools.contract import refusal
from turnwright_grammar.reply import Command

# Some models write every number in JSON with a decimal point.
_INTEGER: Final = re.compile(r"([+-]?\d{1,9})(?:\.0{1,9})?")
_VISIBILITIES: Final = {
    "visible": Visibility.VISIBLE,
    "summarized": Visibility.SUMMARIZED,
    "archived": Visibility.ARCHIVED,
}


def visibility_of(command: Command) -> Visibility:
    """The visibility that a command sets, UNSPECIFIED if it sets none. Raises RefusedError."""
    word = command.attributes.get("visibility", "").strip().lower()
    if not word:
        return Visibility.UNSPECIFIED
    if word not in _VISIBILITIES:
        raise refusal("invalid:400", f"There is no visibility {word!r}; it is visible, summarized or archived.")
    return _VISIBILITIES[word]


def summary_of(command: Command) -> str | None:
    """The summary that a command sets, truncated to its limit; None if it sets none. Source: RU203."""
    summary = command.attributes.get("summary")
    return None if summary is None else " ".join(summary.split())[:SUMMARY_CHARS_MAX]


def with_summary(command: Command, entry: Entry | None) -> str | None:
    """The attributes of an entry with the summary that a command sets; None: unchanged."""
    summary = summary_of(command)
    if summary is None:
        return None
    return to_attributes_json((entry.attributes if entry else {}) | {"summary": summary})


def integer_of(command: Command, name: str) -> int | None:
    """An integer attribute, None if it is absent. Raises RefusedError."""
    value = command.attributes.get(name)
    if value is None:
        return None
    found = _INTEGER.fullmatch(value.strip())
    if not found:
        raise refusal("invalid:400", f"{name} must be a whole number, not {value!r}.")
    return int(found[1])
