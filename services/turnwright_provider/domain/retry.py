"""When to try again, and when to stop trying.

A class has a deadline, counted from the first failure of the call; a wait that would end after it is not begun.
Source: architecture 8; RU305; research/wire 2.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from msgspec import Struct

from turnwright_core.backoff import Backoff
from turnwright_provider.domain.failures import Failure, FailureClass

JITTER: Final = 0.25
"""Share of a wait that chance may take off, so that callers that failed together do not come back together."""


class RetryPolicy(Struct, frozen=True):
    """Deadlines and waits, all in seconds."""

    llm_deadline_s: float = 600.0
    gateway_deadline_s: float = 30.0
    server_deadline_s: float = 60.0
    backoff_s_min: float = 1.0
    backoff_s_max: float = 30.0

    def wait_s(self, attempt: int, failure: Failure, jitter: float) -> float:
        """Seconds to wait after the failed attempt `attempt` (1-based); `jitter` is drawn from [0, 1).

        The vendor's own wait is used as it is, except zero, which would cause a retry storm.
        """
        if failure.retry_after_s:
            return failure.retry_after_s
        return Backoff(self.backoff_s_min, self.backoff_s_max).pause_s(attempt) * (1 - JITTER * jitter)

    def gives_up(self, failure: Failure, elapsed_s: float, wait_s: float) -> bool:
        """Whether the wait would exceed the deadline of the failure's class; `elapsed_s` since the first failure."""
        return elapsed_s + wait_s > self._deadline_s(failure)

    def _deadline_s(self, failure: Failure) -> float:
        return {
            FailureClass.RATE_LIMIT: self.llm_deadline_s,
            FailureClass.WARMUP: self.llm_deadline_s,
            FailureClass.GATEWAY: self.gateway_deadline_s,
            FailureClass.SERVER: self.server_deadline_s,
        }.get(failure.kind, self.server_deadline_s if failure.may_retry else 0.0)


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """The requested wait in seconds: `retry-after-ms`, else `retry-after` in seconds or as an HTTP date."""
    millis = _number(headers.get("retry-after-ms", ""))
    if millis:
        return millis / 1000
    value = headers.get("retry-after", "").strip()
    # Proxies join two headers by a comma; some write the unit.
    seconds = _number(value.partition(",")[0].strip().removesuffix("s"))
    return seconds if seconds is not None else _seconds_until(value, now_s)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _seconds_until(date: str, now_s: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now_s)
    except (ValueError, OverflowError):
        return None
