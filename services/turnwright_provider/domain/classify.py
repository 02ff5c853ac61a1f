"""From an HTTP answer or an error in a stream to a Failure: the class that retries and reasons go by.

Source: architecture 8; research/wire 2.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from turnwright_provider.domain.error_body import ErrorBody, read_error, read_error_bytes
from turnwright_provider.domain.failures import Failure, FailureClass
from turnwright_provider.domain.overflow import is_context_exceeded
from turnwright_provider.domain.retry import retry_after_s

_BY_STATUS: Final[dict[int, FailureClass]] = {
    401: FailureClass.AUTH,
    403: FailureClass.AUTH,
    407: FailureClass.AUTH,
    408: FailureClass.SERVER,
    409: FailureClass.SERVER,
    413: FailureClass.CONTEXT_EXCEEDED,
    425: FailureClass.SERVER,
    429: FailureClass.RATE_LIMIT,
    498: FailureClass.RATE_LIMIT,
    502: FailureClass.GATEWAY,
    504: FailureClass.GATEWAY,
    **dict.fromkeys((*range(520, 528), 530), FailureClass.GATEWAY),
}
"""Statuses of their own; other 4xx are INVALID, other 5xx SERVER. 520 to 530 are Cloudflare's, 498 is Groq's."""

_SPENT: Final = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "enforced_spend_limit_reached", "insufficient_credits"}
)
"""Codes of money that is gone: answered as 429, and no wait brings it back."""

_BAD_KEY: Final = re.compile(
    r"(?:incorrect|invalid|no valid) api[ _-]?key|api[ _-]?key (?:not valid|is invalid)", re.IGNORECASE
)
_BAD_REQUEST: Final = re.compile(r"json\.exception|parse error|failed to parse|invalid json|malformed", re.IGNORECASE)
_WARMING: Final = re.compile(r"\bloading\b|warming up|is starting|not (?:yet )?ready|cold start", re.IGNORECASE)
_MODERATED: Final = re.compile(r"moderat|content polic|flagged", re.IGNORECASE)

_RATE: Final = re.compile(r"too many requests|rate.?limit|tokens per min|\bTPM\b", re.IGNORECASE)
_BY_WORDS: Final[tuple[tuple[re.Pattern[str], int], ...]] = (
    (_RATE, 429),
    (re.compile(r"gateway|upstream (?:connect|timeout)", re.IGNORECASE), 502),
    (re.compile(r"unauthorized|authentication", re.IGNORECASE), 401),
    (re.compile(r"bad request|invalid[ _]request|not supported|does not exist", re.IGNORECASE), 400),
)
"""What an error without a status means. Anything else is a server's trouble."""

_STATUS_IN_WORDS: Final = re.compile(r"\b([45]\d\d)\b")


def classify(status: int, headers: Mapping[str, str], body: bytes, now_s: float) -> Failure:
    """The failure of an HTTP answer other than 200. Header names are lower case; `now_s` is the wall clock."""
    error = read_error_bytes(body)
    failure = _failure(status, error, error.message or f"HTTP {status} without a word")
    refused = headers.get("x-should-retry", "").strip().lower() == "false"
    return replace(failure, retry_after_s=retry_after_s(headers, now_s), final=failure.final or refused)


def classify_in_stream(body: Any) -> Failure:
    """The failure that a server reports inside a stream it had answered with 200."""
    error = read_error(body)
    return _failure(error.status or _status_by_words(error), error, error.message)


def _failure(status: int, error: ErrorBody, detail: str) -> Failure:
    if is_context_exceeded(status, error):
        return Failure(FailureClass.CONTEXT_EXCEEDED, detail, status)
    if {error.code.lower(), error.type.lower()} & _SPENT or (status == 500 and _BAD_REQUEST.search(error.message)):
        return Failure(FailureClass.INVALID, detail, status, final=True)
    return Failure(_kind(status, error.message), detail, status)


def _kind(status: int, words: str) -> FailureClass:
    if status in (400, 422) and _BAD_KEY.search(words):
        return FailureClass.AUTH
    if status == 403 and _MODERATED.search(words):
        return FailureClass.INVALID
    if status == 413 and _RATE.search(words):
        return FailureClass.INVALID
    if status == 503 and _WARMING.search(words):
        return FailureClass.WARMUP
    if kind := _BY_STATUS.get(status):
        return kind
    return FailureClass.INVALID if 300 <= status < 500 else FailureClass.SERVER


def _status_by_words(error: ErrorBody) -> int:
    """A status for an error that names none: 0 counts as the server's trouble."""
    named = _STATUS_IN_WORDS.search(error.message[:40])
    if named:
        return int(named[1])
    words = f"{error.type} {error.code} {error.message}"
    return next((status for pattern, status in _BY_WORDS if pattern.search(words)), 0)
