"""The one error of the pattern library."""

from __future__ import annotations

from typing import Literal

PatternReason = Literal[
    "invalid_glob",
    "invalid_jsonpath",
    "invalid_regex",
    "invalid_xpath",
    "timeout",
    "too_large",
    "too_long",
    "unsupported",
]


class PatternError(ValueError):
    """A pattern that cannot be used.

    `reason` is one word, `pattern` the pattern, and `str(error)` a sentence that a model or a user can act on. Raised
    instead of any error of the engines.

    Source: RU276.
    """

    def __init__(self, reason: PatternReason, pattern: str, detail: str) -> None:
        super().__init__(f"{detail} (pattern: {_shortened(pattern)})")
        self.reason = reason
        self.detail = detail
        self.pattern = pattern


def _shortened(pattern: str, chars_max: int = 80) -> str:
    return pattern if len(pattern) <= chars_max else pattern[: chars_max - 1] + "…"
