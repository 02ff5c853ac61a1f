"""Secrets in text that leaves the service: vendors like to repeat the key that they refuse.

Source: architecture 10 (secrets never reach logs, entries, events or errors).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Final

from turnwright_core.limits import CALL_ID_CHARS_MAX
from turnwright_core.text import ascii_lower

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
