"""Which change of a run's view an owner asks for with its writes, and how large these are."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

from turnwright_values.store import EntryWrite, SetEntry


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


_WRITE_BYTES: Final = 200
"""Estimated size of a write in bytes, besides its texts."""


def writes_bytes(writes: Sequence[EntryWrite]) -> int:
    return sum([_WRITE_BYTES + 2 * len(write.path) + _texts_bytes(write.change) for write in writes])


def _texts_bytes(change: object) -> int:
    if not isinstance(change, SetEntry):
        return len(getattr(change, "text", ""))
    texts = (change.body, change.attributes_json, change.merge_attributes_json, change.record)
    return sum(map(len, filter(None, texts)))
