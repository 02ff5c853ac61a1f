"""What was decided on a proposal, as the record of its command keeps it.

Source: rows RU249-RU255; decisions C14, C20.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field


class Ruling(Enum):
    """What was decided on a proposal. EXPIRED: nobody decided in time."""

    ACCEPTED = "accept"
    REJECTED = "reject"
    EXPIRED = "expire"


class Decision(Struct, frozen=True):
    """What somebody decided on a proposal: `comment` is the answer to a question."""

    ruling: Ruling
    comment: str = ""
    principal: str = ""
    time_ms: int = 0
    contents: Mapping[str, str] = field(default_factory=dict)
    """What shall be written instead of what was proposed, by path, until the effect has it."""
    edited: tuple[str, ...] = ()
    """The paths whose content somebody gave; the empty one is the only one there was."""
    client_runs: bool = False
    """Whether who decided carries the command out."""
