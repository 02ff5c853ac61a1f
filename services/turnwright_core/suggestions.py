"""Suggestions for mistyped names."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

NAMED_MAX: Final = 20
"""Models that an error names: its text has a bound."""


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """` (did you mean x?)` if a known name is close, else empty."""
    # Imported at the first mistake: the import takes longer than the suggestion.
    from difflib import get_close_matches  # noqa: PLC0415

    close = get_close_matches(name, tuple(known), 1, likeness)
    return f" (did you mean {close[0]}?)" if close else ""


def unknown_model(alias: str, known: Collection[str]) -> str:
    listed = ", ".join(islice(known, NAMED_MAX)) or "none yet"
    return f"There is no model {alias!r}{did_you_mean(alias, known)}. Available: {listed}. Or name one as vendor/model."


def unknown_vendor(name: str, known: Iterable[str]) -> str:
    listed = sorted(known)
    return (
        f"There is no vendor {name}{did_you_mean(name, listed)}; there are {', '.join(listed)}. Any other server "
        "becomes one in endpoints.toml, where the provider runs."
    )
