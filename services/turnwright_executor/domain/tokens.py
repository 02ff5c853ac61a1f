"""Token estimates for tools, and calibration against the vendor's counts.

Source: rows RU211, RU223 (code points over the divisor, rounded up); decision C16.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from turnwright_values.types import TokenSource, Turn, TurnRequest, TurnResult, Usage

from turnwright_core.limits import CALIBRATION_MAX

TOKEN_DIVISOR: Final = 2
"""Default of the setting of this name: code points per token."""

TOKEN_CHARS_MAX: Final = 7
"""No model has fewer tokens than one for so many code points, on average over a prompt."""

CALIBRATION_MIN: Final = 0.05
"""If a vendor counts fewer tokens than this per estimated one, it leaves some out, such as cached ones."""


class TokenRate(Struct, frozen=True):
    """By what the estimate for a packet is multiplied, and where that comes from. A `calibration` of 0: unknown."""

    calibration: float = 0.0
    source: TokenSource = TokenSource.UNSPECIFIED


def calibration_of(usage: Usage, packet_tokens: int) -> float:
    """Ratio of reported to estimated tokens of a packet; 0 if none were reported, or those of another text."""
    return ratio_of(usage.prompt_tokens, packet_tokens)


def ratio_of(tokens: int, packet_tokens: int) -> float:
    """Ratio of counted to estimated tokens of a packet; 0 if it is out of the range of plausible ones."""
    ratio = tokens / packet_tokens if packet_tokens else 0.0
    return ratio if CALIBRATION_MIN <= ratio <= CALIBRATION_MAX else 0.0


def rate_after(last: TurnResult) -> TokenRate:
    """The rate for the turn after this one (C16): by its usage; if none was reported, its own."""
    calibration = calibration_of(last.usage, last.packet_tokens)
    return TokenRate(calibration, TokenSource.USAGE) if calibration else TokenRate(last.calibration, last.token_source)


def rate_from(before: Turn | None, request: TurnRequest) -> TokenRate:
    """The rate for the first turn of a loop, by the run's turn before it; unknown if that was sent in another way."""
    if before is None or before.result is None or _sent_as(before.request) != _sent_as(request):
        return TokenRate()
    calibration = calibration_of(before.result.usage, before.result.packet_tokens)
    return TokenRate(calibration, TokenSource.USAGE) if calibration else TokenRate()


def _sent_as(request: TurnRequest) -> tuple[object, ...]:
    return request.vendor_model, request.assembly, request.calls, request.tools
