"""How long one run of a pattern may take, and how much it may write."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import TypeVar

from turnwright_core.patterns.errors import PatternError

PATTERN_TIMEOUT_S = 0.5
"""Seconds of the processor: a machine that is busy with others is no fault of the pattern."""

REPLACED_CHARS_MAX = 20_000_000

Result = TypeVar("Result")


def overrun(pattern: str) -> PatternError:
    """Return the error of a pattern that took too long."""
    detail = f"The pattern took longer than {PATTERN_TIMEOUT_S} s; use a simpler one, or a smaller text"
    return PatternError("timeout", pattern, detail)


def check_length(pattern: str, chars: int) -> None:
    """Raise PatternError when a replacement would make a text of so many characters."""
    if chars > REPLACED_CHARS_MAX:
        detail = f"The replacement would make a text of more than {REPLACED_CHARS_MAX} characters; replace less at once"
        raise PatternError("too_large", pattern, detail)


class Deadline:
    """How much time of its thread the run of `pattern` may take; begins when it is made, in that thread."""

    __slots__ = ("_end_s", "_pattern")

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._end_s = thread_time() + PATTERN_TIMEOUT_S

    def check(self) -> None:
        """Raise PatternError when the time is over."""
        if thread_time() > self._end_s:
            raise overrun(self._pattern)

    def bound(self, run: Callable[[float], Result]) -> Result:
        """Return what `run` does with the seconds that are left; raise PatternError when it takes longer."""
        self.check()
        try:
            return run(max(self._end_s - thread_time(), 0.001))
        except TimeoutError:
            raise overrun(self._pattern) from None
