"""What a command is about, in a few words, for lists of the queue. Source: row RC11."""

from __future__ import annotations

from typing import Final

PREVIEW_CHARS: Final = 120
"""Characters of a preview; longer texts are cut, and end with an ellipsis."""


def shortened(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}\u2026"


def at_index(index: int, text: str = "") -> str:
    """A place in the list of messages, and what is sent there."""
    return f"@{index}: {text}" if text else f"@{index}"
