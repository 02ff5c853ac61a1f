"""Secrets in text that leaves the service: vendors like to repeat the key that they refuse.

Source: architecture 10 (secrets never reach logs, entries, events or errors).
"""

from __future__ import annotations

import re
from typing import Final

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


def redact(text: str) -> str:
    """The text with everything that looks like a key, token or password replaced."""
    text = _KEY_SHAPED.sub(REDACTED, text)
    text = _LABELLED.sub(rf"\1{REDACTED}", text)
    return _USER_OF_URL.sub(rf"\1{REDACTED}@", text)
