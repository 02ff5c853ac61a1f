"""Which change of a run's view an owner asks for with its writes, and how large these are."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class ReturnView(IntEnum):
    """Which change of the run's view an answer tells, if any: what the assembler need not read then."""

    NONE = 0
    PACKET = 1
    """Of what a packet shows."""
    MESSAGES = 2
    """Of what messages are made of."""


def return_view_of(request: Any) -> ReturnView:
    """What a request of an owner, a value or a message, asks for."""
    if not request.return_view_change:
        return ReturnView.NONE
    return ReturnView.MESSAGES if request.view_change_of_messages else ReturnView.PACKET
