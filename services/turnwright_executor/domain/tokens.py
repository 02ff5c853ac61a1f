"""Token estimates for tools, and calibration against the vendor's counts.

Source: rows RU211, RU223 (code points over the divisor, rounded up); decision C16.
"""

from __future__ import annotations

from typing import Final

from turnwright_core.limits import CALIBRATION_MAX
from turnwright_core.runs import Usage

TOKEN_DIVISOR: Final = 2
"""Default of the setting of this name: code points per token."""

CALIBRATION_MIN: Final = 0.05
"""If a vendor counts fewer tokens than this per estimated one, it leaves some out, such as cached ones."""


def token_count(text: str, divisor: int = TOKEN_DIVISOR) -> int:
    return tokens_of(len(text), divisor)


def tokens_of(chars: int, divisor: int) -> int:
    return -(-chars // divisor)


def calibration_of(usage: Usage, packet_tokens: int) -> float:
    """Ratio of reported to estimated tokens of a packet; 0 if none were reported, or those of another text."""
    calibration = usage.prompt_tokens / packet_tokens if packet_tokens else 0.0
    return calibration if CALIBRATION_MIN <= calibration <= CALIBRATION_MAX else 0.0
