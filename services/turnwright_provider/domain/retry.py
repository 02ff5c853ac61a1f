"""When to try again, and when to stop trying.

A class has a deadline, counted from the first failure of the call; a wait that would end after it is not begun.
Source: architecture 8; RU305; research/wire 2.4.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
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
    connect_deadline_s: float = 10.0

    def wait_s(self, attempt: int, failure: Failure, jitter: float) -> float:
        """Seconds to wait after the failed attempt `attempt` (1-based); `jitter` is drawn from [0, 1).

        The vendor's own wait is used as it is, except zero, which would cause a retry storm.
        """
        if failure.retry_after_s:
            return failure.retry_after_s
        if failure.kind is FailureClass.UNREACHABLE:
            # A server that restarts is back within seconds.
            attempt = 1
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
            FailureClass.UNREACHABLE: self.connect_deadline_s if failure.may_retry else 0.0,
        }.get(failure.kind, self.server_deadline_s if failure.may_retry else 0.0)


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """The requested wait in seconds: `retry-after-ms`, else `retry-after`. Each may also be a moment."""
    for name, per_s in (("retry-after-ms", 1000), ("retry-after", 1)):
        # Proxies join two headers by a comma, which a date contains too.
        value = headers.get(name, "").strip()
        wait_s = _wait_s(value, now_s, per_s)
        wait_s = _wait_s(value.partition(",")[0].strip(), now_s, per_s) if wait_s is None else wait_s
        if wait_s or (wait_s is not None and name == "retry-after"):
            return wait_s
    return None


def reset_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """The wait in seconds until used up limits are reset, by headers such as `x-ratelimit-reset-tokens`."""
    waits = (
        _wait_s(value.strip(), now_s, 1)
        for name, value in headers.items()
        if _RESET.search(name) and not (_number(headers.get(_RESET.sub("remaining", name), "0")) or 0) > 0
    )
    return max(filter(None, waits), default=None)


def wait_in_words_s(message: str) -> float | None:
    """The wait that a sentence asks for, in seconds: "try again in 1m30s"."""
    found = _ASKED.search(message)
    if found is None:
        return None
    length_s = duration_s(found["wait"])
    return float(found["wait"]) if length_s is None else length_s


def duration_s(text: str) -> float | None:
    """A duration with its units, such as `6m0s`, `350ms` or `1 minute and 30 seconds`, in seconds; None for others."""
    if not _DURATION.fullmatch(text.strip()):
        return None
    return round(sum(float(amount) * _UNITS_S[unit.lower()] for amount, unit in _AMOUNT.findall(text)), 9)


_UNITS_S: Final = {
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds", "millis"), 0.001),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
_UNIT: Final = "|".join(sorted(_UNITS_S, key=len, reverse=True))
_AMOUNT: Final = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)\s{{0,2}}({_UNIT})", re.IGNORECASE)
_SPELT: Final = rf"(?:\d{{1,9}}(?:\.\d{{1,9}})?\s{{0,2}}(?:{_UNIT})(?:,?\s{{0,2}}(?:and\s{{1,2}})?)?){{1,5}}"
_DURATION: Final = re.compile(_SPELT, re.IGNORECASE)
_ASKED: Final = re.compile(
    r"\b(?:again|retry\w*|wait|come back|resets?|available|unblocked)\b[^.\d\n]{0,40}?"
    rf"(?P<wait>{_SPELT}(?![A-Za-z\d])|(?<=[ :=])\d{{1,5}}(?:\.\d{{1,9}})?(?!\.\d|\s?\w))",
    re.IGNORECASE,
)
_RESET: Final = re.compile(r"(?<=ratelimit-)reset|(?<=-)reset\Z|(?<=rate-limit-)reset", re.IGNORECASE)

_MOMENT_S_MIN: Final = 1e9
"""From here on a number is a moment in seconds since 1970, and from the thousandfold on in milliseconds."""


def _wait_s(text: str, now_s: float, per_s: int) -> float | None:
    number = _number(text)
    if number is None:
        length_s = duration_s(text)
        return _seconds_until(text, now_s) if length_s is None else length_s
    if number < _MOMENT_S_MIN:
        return number / per_s
    return max(0.0, number / (1000 if number >= 1000 * _MOMENT_S_MIN else 1) - now_s)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _seconds_until(date: str, now_s: float) -> float | None:
    try:
        moment = datetime.fromisoformat(date) if _ISO.match(date) else parsedate_to_datetime(date)
        return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now_s)
    except (ValueError, OverflowError):
        return None


_ISO: Final = re.compile(r"\d{4}-\d{2}-\d{2}T")
