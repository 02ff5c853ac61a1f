"""Time and size limits for one run of a pattern."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import TypeVar

from turnwright_core.patterns.errors import PatternError

PATTERN_TIMEOUT_S = 0.5
"""CPU seconds: a machine that is busy with other work must not fail a pattern."""

REPLACED_CHARS_MAX = 20_000_000

Result = TypeVar("Result")


def timeout_error(pattern: str) -> PatternError:
    detail = f"The pattern took longer than {PATTERN_TIMEOUT_S} s; use a simpler one, or a smaller text"
    return PatternError("timeout", pattern, detail)


def check_length(pattern: str, chars: int) -> None:
    """Raise PatternError if a replacement would make a text of this many characters."""
    if chars > REPLACED_CHARS_MAX:
        detail = f"The replacement would make a text of more than {REPLACED_CHARS_MAX} characters; replace less at once"
        raise PatternError("too_large", pattern, detail)


class Deadline:
    """CPU time limit for one run of `pattern`; starts when it is constructed, in the thread that runs it."""

    __slots__ = ("_end_s", "_pattern")

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._end_s = thread_time() + PATTERN_TIMEOUT_S

    def check(self) -> None:
        if thread_time() > self._end_s:
            raise timeout_error(self._pattern)

    def bound(self, run: Callable[[float], Result]) -> Result:
        """Call `run` with the remaining seconds; raise PatternError if it takes longer."""
        self.check()
        try:
            return run(max(self._end_s - thread_time(), 0.001))
        except TimeoutError:
            raise timeout_error(self._pattern) from None
