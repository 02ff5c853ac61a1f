"""The size of a text in tokens, for the figures that tools tell the model.

Source: row RU223 (code points over the divisor, rounded up).
"""

from __future__ import annotations

from typing import Final

TOKEN_DIVISOR: Final = 2
"""Code points per token."""


def token_count(text: str) -> int:
    """The estimate of the specification."""
    return -(-len(text) // TOKEN_DIVISOR)
