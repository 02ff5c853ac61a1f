"""The size of a text in tokens, for the figures that tools tell the model.

Source: rows RU211, RU223 (code points over the divisor, rounded up).
"""

from __future__ import annotations

from typing import Final

TOKEN_DIVISOR: Final = 2
"""Code points per token, unless the setting of this name says another number."""


def token_count(text: str, divisor: int = TOKEN_DIVISOR) -> int:
    """The estimate of the specification."""
    return -(-len(text) // divisor)
