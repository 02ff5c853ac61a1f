"""The size of a text in tokens, for the figures that tools tell the model, and how far vendors count otherwise.

Source: rows RU211, RU223 (code points over the divisor, rounded up); decision C16.
"""

from __future__ import annotations

from typing import Final

from turnwright_core.limits import CALIBRATION_MAX
from turnwright_core.runs import Usage

TOKEN_DIVISOR: Final = 2
"""Code points per token, unless the setting of this name says another number."""

CALIBRATION_MIN: Final = 0.05
"""A vendor that counts fewer tokens than this for one estimated leaves some out, as those that it had in its cache."""


def token_count(text: str, divisor: int = TOKEN_DIVISOR) -> int:
    return tokens_of(len(text), divisor)


def tokens_of(chars: int, divisor: int) -> int:
    return -(-chars // divisor)


def calibration_of(usage: Usage, packet_tokens: int) -> float:
    """Reported over estimated tokens of a packet; 0 where nobody told them, or told those of another text."""
    calibration = usage.prompt_tokens / packet_tokens if packet_tokens else 0.0
    return calibration if CALIBRATION_MIN <= calibration <= CALIBRATION_MAX else 0.0
