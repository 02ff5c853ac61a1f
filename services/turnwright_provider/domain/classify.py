"""Error classification: from an HTTP answer or an error in a stream to the class that decides about retries.

Source: architecture 8; research/wire 2.4.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from turnwright_provider.domain.error_body import ErrorBody, read_error, read_error_bytes
from turnwright_provider.domain.failures import RETRYABLE, Failure, FailureClass
from turnwright_provider.domain.overflow import is_context_exceeded
from turnwright_provider.domain.retry import reset_after_s, retry_after_s, wait_in_words_s

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
"""Classes of special statuses; other 4xx are INVALID, other 5xx SERVER. 520 to 530 are Cloudflare's, 498 is Groq's."""

_SPENT: Final = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "enforced_spend_limit_reached", "insufficient_credits"}
    | {"billing_error"}
)
"""Codes for an exhausted balance: sent with 429, but waiting does not help."""

_SPENT_WORDS: Final = re.compile(r"insufficient (?:account )?(?:balance|funds)|余额不足|欠费", re.IGNORECASE)
"""Error texts of vendors that use other codes for it."""

_KEY: Final = r"(?:(?:api|access|subscription|secret)[ _-]?key|x-api-key|(?:auth\w*|bearer|access) token|credentials)s?"
_BAD_KEY: Final = re.compile(
    rf"(?:incorrect|invalid|bad|wrong|unknown|expired|revoked|missing|malformed|no|valid|provide|find|without)[ :'\"`]+"
    rf"(?:\w+ ){{0,2}}{_KEY}(?:\b|_)"
    rf"|\b{_KEY}(?:\b|_)[^.\n]{{0,40}}(?:invalid|incorrect|wrong|expired"
    r"|\bnot (?:valid|found|provided|recognized|exist|active)"
    r"|revoked|disabled|deactivated|missing|required)"
    r"|invalid_api_key|invalid or expired token|unauthorized|unauthenticated|not authenticated"
    r"|\bauthentication[ _](?:failed|fails|failure|error|required)|\b(?:invalid|missing|bearer) authentication\b"
    r"|\b(?:validate|carry|set) (?:\w+ ){0,3}(?:credentials|(?:api|secret)[ _]?key)"
    r"|\A\W*(?:invalid token|token (?:has )?(?:expired|invalid)[\w ]*|user not found)\W*\Z"
    r"|\binvalid (?:username|user name) or password|\bsecurity token\b[^.\n]{0,40} (?:invalid|expired)"
    r"|\bkey is (?:inactive|invalid|expired)|\bkey is not authori[sz]ed"
    r"|(?:令牌|密钥|身份|api ?key)[^。\n]{0,12}(?:过期|失败|不正确|无效|错误)|无效的 ?(?:api ?)?(?:密钥|令牌|key)",
    re.IGNORECASE,
)
"""Phrases for a refused key, for servers that send another status, or none."""

_BAD_REQUEST: Final = re.compile(r"json\.exception|parse error|failed to parse|invalid json|malformed", re.IGNORECASE)
_WARMING: Final = re.compile(r"\bloading\b|warming up|is starting|not (?:yet )?ready|cold start", re.IGNORECASE)
_IMAGE: Final = re.compile(r"\bimages?\b", re.IGNORECASE)
_MODERATED: Final = re.compile(r"moderat|content polic|flagged", re.IGNORECASE)

_RATE: Final = re.compile(
    r"too many requests|rate.?limit|tokens per min|\bTPM\b|resource_exhausted|速率限制|请求频率", re.IGNORECASE
)
_THROTTLED: Final = re.compile(
    r"throttl(?:ed|ing)|too ?many ?requests|\brate.?limit(?:s|ed|ing)?\b[^.\n]{0,60}\b(?:exceeded|reached|hit|error)"
    r"|\b(?:exceeded|reached|hit)\b[^.\n]{0,60}\brate.?limit|rate_limit_(?:exceeded|error|reached)|\brate.?limited\b"
    r"|resource_exhausted|slow_?down\b|\bslow down\b|request(?: )?(?:rate|limit)(?: )?(?:is )?(?:too high|exceeded)"
    r"|reduce (?:your )?request rate|\brate exceeded|too many [^.\n]{0,40}, please wait\b"
    r"|provisionedthroughputexceeded|速率限制|请求频率|限流",
    re.IGNORECASE,
)
"""Phrases and codes for a rate limit, for servers that send another status than 429."""

_THROTTLED_STATUSES: Final = frozenset({400, 403, 409, 422, 500, 503})

_BY_WORDS: Final[tuple[tuple[re.Pattern[str], int], ...]] = (
    (_THROTTLED, 429),
    (_RATE, 429),
    (re.compile(r"gateway|upstream (?:connect|timeout)", re.IGNORECASE), 502),
    (_BAD_KEY, 401),
    (re.compile(r"authentication", re.IGNORECASE), 401),
    (re.compile(r"insufficient[ _](?:balance|credits?|funds)|余额不足", re.IGNORECASE), 402),
    (re.compile(r"permission[ _](?:error|denied)", re.IGNORECASE), 403),
    (re.compile(r"\b(?:model[ _])?not[ _]found(?:_error)?\b", re.IGNORECASE), 404),
    (re.compile(r"bad request|invalid[ _](?:request|argument)|not supported|does not exist", re.IGNORECASE), 400),
)
"""Classes by phrases, for errors without a status. Anything else is a server error."""

_KEY_STATUSES: Final = frozenset({0, 200, 400, 404, 422, 500})
"""Statuses with which a key may be refused; 0 is an error without a status, and some servers send 200."""

_SAYS_RETRY: Final = {"true": True, "false": False}
"""Values of `x-should-retry`."""

_STATUS_IN_WORDS: Final = re.compile(r"\b(4(?:[01]\d|2[0-9]|31|51|9[89])|5(?:0\d|1[01]|2\d|30))\b(?! tokens)")


_NO_MODEL: Final = re.compile(
    r"model[_ ]?not[_ ](?:found|exist)|(?:unknown|invalid|no such|not a valid|unsupported) model|not found the model"
    r"|not have access to (?:the )?model"
    r"|\bmodels?\b[^\n]{0,200}?(?:not (?:found|exist|listed|recognized|available|a valid)|does ?n[o']t exist|is unknown"
    r"|no longer|unavailable|is invalid|not supported)|deployment[^\n]{0,80} not (?:found|exist)|模型不存在",
    re.IGNORECASE,
)
"""Phrases for an unknown model, for servers that send another status than 404."""


def denies_model(detail: str) -> bool:
    """Whether a refusal may mean that there is no such model."""
    return bool(_NO_MODEL.search(detail))


def classify(status: int, headers: Mapping[str, str], body: bytes, now_s: float) -> Failure:
    """The failure for an HTTP answer other than 200. Header names are lower case; `now_s` is the wall clock."""
    error = read_error_bytes(body)
    failure = _failure(status, error, error.message or f"HTTP {status} without a message")
    asked_s = retry_after_s(headers, now_s)
    wait_s = asked_s or failure.retry_after_s
    if wait_s is None and failure.kind is FailureClass.RATE_LIMIT:
        wait_s = reset_after_s(headers, now_s)
    may_retry = _SAYS_RETRY.get(headers.get("x-should-retry", "").strip().lower(), failure.may_retry)
    return replace(failure, retry_after_s=asked_s if wait_s is None else wait_s, may_retry=may_retry)


def classify_in_stream(body: object) -> Failure:
    """The failure for an error that a server reports inside a stream with status 200."""
    error = read_error(body)
    return _failure(error.status or _status_by_words(error), error, error.message)


def _failure(status: int, error: ErrorBody, detail: str) -> Failure:
    if is_context_exceeded(status, error):
        return Failure(FailureClass.CONTEXT_EXCEEDED, detail, status)
    is_spent = bool({code.lower() for code in error.codes} & _SPENT or _SPENT_WORDS.search(error.message))
    if is_spent or (status == 500 and _BAD_REQUEST.search(error.message)):
        return Failure(FailureClass.INVALID, detail, status, may_retry=False)
    kind = _kind(status, error)
    in_words_s = wait_in_words_s(error.message) if kind in RETRYABLE else None
    return Failure(kind, detail, status, retry_after_s=error.retry_s or in_words_s)


def _kind(status: int, error: ErrorBody) -> FailureClass:
    if kind := _kind_by_words(status, error):
        return kind
    if status == 503 and _WARMING.search(error.message):
        return FailureClass.WARMUP
    if kind := _BY_STATUS.get(status):
        return kind
    return FailureClass.INVALID if 300 <= status < 500 else FailureClass.SERVER


def _kind_by_words(status: int, error: ErrorBody) -> FailureClass | None:
    """The class of an error whose words say more than its status."""
    words = error.message
    if status in _KEY_STATUSES and _BAD_KEY.search(" ".join((*error.codes, words))):
        return FailureClass.AUTH
    if status == 403 and (_MODERATED.search(words) or denies_model(" ".join((*error.codes, words)))):
        return FailureClass.INVALID
    if status == 413 and (_RATE.search(words) or _IMAGE.search(words)):
        return FailureClass.INVALID
    if status in _THROTTLED_STATUSES and _THROTTLED.search(" ".join((*error.codes, words))):
        return FailureClass.RATE_LIMIT
    return None


def _status_by_words(error: ErrorBody) -> int:
    """A status for an error without one; 0 counts as a server error."""
    named = _STATUS_IN_WORDS.search(error.message[:40])
    if named:
        return int(named[1])
    words = " ".join((*error.codes, error.message))
    return next((status for pattern, status in _BY_WORDS if pattern.search(words)), 0)
