"""Failures of calls to vendors: their classes, the errors for the caller, and which of them are retried.

Vendors like to repeat the key that they refuse: secrets never reach logs, entries, events or errors.
Source: architecture 8 (error classes), 10, 15; rows RU220, RU305.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import Final

from msgspec import Struct
from turnwright_values.provider import RetryReason

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import CALL_ID_CHARS_MAX
from turnwright_core.text import ascii_lower
from turnwright_provider.domain.overflow import reported_token_counts
from turnwright_provider.domain.surrogates import join_surrogates

REDACTED: Final = "[redacted]"

# Bounded repetitions after a literal prefix: linear on hostile text.
_KEY_SHAPED: Final = re.compile(
    r"\b(?:sk|pk|rk|xai|gsk|hf|nvapi|pplx|csk|fw|r8|tgp|key)[-_][A-Za-z0-9_*.\-]{3,300}"
    r"|\bAIza[A-Za-z0-9_*\-]{3,300}"
    r"|\btw1\.[A-Za-z0-9_@.\-]{3,300}"
    r"|\beyJ[A-Za-z0-9_\-]{8,2000}(?:\.[A-Za-z0-9_\-]{1,4000}){1,4}"
)
_LABELLED: Final = re.compile(
    r"(?i)(\b(?:bearer|api[-_ ]?key(?: provided)?|authorization|x-api-key|access[-_ ]token|password)[\"']?"
    r"(?:\s{0,3}[:=]\s{0,3}|\s)[\"']?)(?!(?:bearer|is|was|not|provided|or|and|to|in|for|header|auth)\b)"
    r"([A-Za-z0-9_*.\-+/=]{8,2000})"
)
_USER_OF_URL: Final = re.compile(r"(://)[^/\s@]{1,300}@")


_SECRET_OF_QUERY: Final = re.compile(
    r"(?i)([?&](?:[a-z_-]{0,20}(?:key|token|secret|password|signature)|sig|code)=)[^&\s\"'#]{1,2000}"
)

SECRET_CHARS_MIN: Final = 6
"""A secret as short as that is looked for; a shorter one would be found in any text."""

HIDDEN_CHARS_MAX: Final = CALL_ID_CHARS_MAX
"""As much of a text is searched for secrets and kept, in code points: nothing longer of a vendor's is passed on."""

PART_CHARS: Final = 8
"""Parts of a secret of this many characters are redacted too."""

_END_CHARS: Final = 4
_MASK: Final = re.compile(r"\*\*|•|…|\.\.\.|[xX]{4}")
_MASKED: Final = re.compile(r"([\w\-+/=]{0,80})(?:\*{2,200}|•{1,200}|…|\.{3,200}|[xX]{4,200})([\w\-+/=]{0,80})")


def redact(text: str) -> str:
    """The text with everything that looks like a key, token or password replaced."""
    text = _KEY_SHAPED.sub(REDACTED, text)
    text = _SECRET_OF_QUERY.sub(rf"\1{REDACTED}", text)
    text = _LABELLED.sub(rf"\1{REDACTED}", text)
    return _USER_OF_URL.sub(rf"\1{REDACTED}@", text)


class Secrets:
    """Redacts our own secrets in vendors' messages: whole, in part, or with their middle masked."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secret.lower() for secret in secrets if len(secret) >= SECRET_CHARS_MIN)

    def hide(self, text: str) -> str:
        """The text without our secrets, of a long one the beginning: on the event loop each character is work."""
        text = text[:HIDDEN_CHARS_MAX]
        is_masked = bool(self._secrets and _MASK.search(text))
        for secret in self._secrets:
            text = _without(_MASKED.sub(partial(_unmasked, secret), text) if is_masked else text, secret)
        return text


def _unmasked(secret: str, found: re.Match[str]) -> str:
    """The replacement for a masked word: nothing of it where it begins or ends like the secret."""
    begin, end = found[1].lower(), found[2].lower()
    is_ours = (len(begin) > 1 and secret.startswith(begin)) or (len(end) > 1 and secret.endswith(end))
    return REDACTED if is_ours else found[0]


def _without(text: str, secret: str) -> str:
    lowered = ascii_lower(text)
    size = min(PART_CHARS, len(secret))
    parts = {secret[at : at + size] for at in range(len(secret) - size + 1)}
    redacted: list[str] = []
    end = 0
    for at in range(len(text) - size + 1):
        if lowered[at : at + size] not in parts:
            continue
        if at >= end:
            redacted += [text[end:at], REDACTED]
        end = at + size
    redacted.append(text[end:])
    text = "".join(redacted)
    # A truncated text may end with the beginning of a secret.
    ends = (n for n in range(len(secret), _END_CHARS - 1, -1) if text.lower().endswith(secret[:n]))
    cut = next(ends, 0)
    return text[: len(text) - cut] + REDACTED if cut else text


DETAIL_CHARS_MAX: Final = 500
"""Longest vendor message that is passed on, in code points (provider_service.proto, Retry.detail)."""


class FailureClass(Enum):
    """Classes of failures; the values are the words of scripts."""

    RATE_LIMIT = "rate_limit"
    WARMUP = "warmup"
    GATEWAY = "gateway"
    SERVER = "server"
    AUTH = "auth"
    CONTEXT_EXCEEDED = "context_exceeded"
    INVALID = "invalid"
    UNREACHABLE = "unreachable"
    PROTOCOL = "protocol"
    TIMEOUT = "timeout"


_RETRY_REASONS: Final = {
    FailureClass.RATE_LIMIT: RetryReason.RATE_LIMIT,
    FailureClass.WARMUP: RetryReason.WARMUP,
    FailureClass.GATEWAY: RetryReason.GATEWAY,
    FailureClass.SERVER: RetryReason.SERVER,
}
RETRYABLE: Final = frozenset(_RETRY_REASONS)
"""Transient classes."""


class Failure(Struct, frozen=True):
    """One failed attempt. `status` is 0 if there was no HTTP answer.

    `hint` is our own advice for people, in addition to the class. `may_retry` is the vendor's word on a retry, whatever
    the class; None if it has none. `timeout_s` is the timeout that expired, in seconds, `url` where the vendor
    was looked for, without secrets.
    """

    kind: FailureClass
    detail: str
    status: int = 0
    retry_after_s: float | None = None
    may_retry: bool | None = None
    timeout_s: float = 0.0
    hint: str = ""
    url: str = ""

    def is_retryable(self) -> bool:
        return self.kind in RETRYABLE if self.may_retry is None else self.may_retry

    @property
    def retry_reason(self) -> RetryReason:
        """Why an attempt is made again after it; SERVER for a class that is not transient."""
        return _RETRY_REASONS.get(self.kind, RetryReason.SERVER)


class VendorError(Exception):
    """A vendor's call failed; carries the Failure. Never leaves the service."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def failed(kind: FailureClass, detail: str, status: int = 0) -> VendorError:
    return VendorError(Failure(kind, detail, status))


_REASON: Final[dict[FailureClass, Reason]] = {
    FailureClass.RATE_LIMIT: Reason.VENDOR_RATE_LIMIT,
    FailureClass.WARMUP: Reason.VENDOR_FAILED,
    FailureClass.GATEWAY: Reason.VENDOR_FAILED,
    FailureClass.SERVER: Reason.VENDOR_FAILED,
    FailureClass.AUTH: Reason.VENDOR_AUTH,
    FailureClass.CONTEXT_EXCEEDED: Reason.CONTEXT_EXCEEDED,
    FailureClass.INVALID: Reason.VENDOR_REJECTED,
    FailureClass.UNREACHABLE: Reason.VENDOR_UNREACHABLE,
    FailureClass.PROTOCOL: Reason.VENDOR_PROTOCOL,
    FailureClass.TIMEOUT: Reason.VENDOR_TIMEOUT,
}

_SENTENCE: Final[dict[Reason, str]] = {
    Reason.VENDOR_RATE_LIMIT: "The rate limit of {vendor} did not clear in time; wait, or use another model: {detail}",
    Reason.VENDOR_FAILED: "{vendor} failed{http}; try again later, or use another model: {detail}",
    Reason.VENDOR_AUTH: "{vendor} refused the key{http}; set {key_setting} where the provider runs: {detail}",
    Reason.CONTEXT_EXCEEDED: "The request is longer than the context window of {model} at {vendor}: {detail}",
    Reason.VENDOR_REJECTED: "{vendor} refused the request for model {model}{http}: {detail}",
    Reason.VENDOR_UNREACHABLE: "Cannot connect to {vendor}{at}: {detail}",
    Reason.VENDOR_PROTOCOL: "{vendor} did not answer with a chat completion; check its address: {detail}",
    Reason.VENDOR_TIMEOUT: "{vendor} sent nothing for too long; try again later, or use another model: {detail}",
    Reason.STREAM_INTERRUPTED: "The stream of {vendor} stopped in the middle of the reply: {detail}",
}


def to_fault(failure: Failure, vendor: str, model: str, *, started: bool, key_setting: str = "") -> TurnwrightError:
    """The error for the caller. `started`: a delta was delivered, so a retryable failure becomes an interruption."""
    key_setting = key_setting or "a setting of that vendor"
    interrupted = started and failure.kind in RETRYABLE - {FailureClass.RATE_LIMIT}
    reason = Reason.STREAM_INTERRUPTED if interrupted else _REASON[failure.kind]
    detail = clean(failure.detail)
    http = f" (HTTP {failure.status})" if failure.status else ""
    at = f" at {failure.url}" if failure.url else ""
    message = _SENTENCE[reason].format(
        vendor=vendor, model=model, http=http, detail=detail, key_setting=key_setting, at=at
    )
    message = _advised(message, failure.hint)
    metadata: dict[str, object] = {"vendor": vendor, "detail": detail}
    if failure.status:
        metadata["http_status"] = failure.status
    if reason is Reason.CONTEXT_EXCEEDED:
        counts = zip(("context_length", "prompt_tokens"), reported_token_counts(failure.detail), strict=True)
        metadata.update((name, count) for name, count in counts if count)
    if reason is Reason.VENDOR_TIMEOUT:
        metadata["timeout_s"] = failure.timeout_s
    return fault(reason, message, **metadata)


def retry_detail(failure: Failure, vendor: str) -> str:
    """What is said of a failure that is retried: of a connection also where it was tried, and what to look at."""
    if failure.kind is not FailureClass.UNREACHABLE:
        return clean(failure.detail)
    return clean(to_fault(failure, vendor, "", started=False).message)


def _advised(message: str, hint: str) -> str:
    if not hint:
        return message
    stop = "" if message.endswith((".", "!", "?")) else "."
    return f"{message}{stop} {hint}"


def clean(detail: str) -> str:
    """A vendor's message on one line, without secrets, truncated to DETAIL_CHARS_MAX."""
    # Truncating before redacting could split a key and show its first half; redacting a huge body is expensive.
    line = redact(" ".join(join_surrogates(detail[: 4 * DETAIL_CHARS_MAX]).split()))
    return line if len(line) <= DETAIL_CHARS_MAX else line[: DETAIL_CHARS_MAX - 1] + "…"
