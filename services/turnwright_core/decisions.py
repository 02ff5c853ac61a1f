"""Decisions on proposals, as the record of the command stores them.

Source: rows RU249-RU255; decisions C14, C20.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field


class DecisionKind(Enum):
    """The kind of decision. EXPIRED: nobody decided in time."""

    ACCEPTED = "accept"
    REJECTED = "reject"
    EXPIRED = "expire"


class Permission(Enum):
    """Who allowed the effect of a command: nobody had to, somebody's decision, the client that called it, or a grant.

    UNSPECIFIED: a mark of an earlier release, which counts as one by a grant.
    """

    UNSPECIFIED = 0
    NOT_NEEDED = 1
    DECISION = 2
    CALLER = 3
    RUN = 4
    LOOP = 5
    TOOL_RULE = 6

    @property
    def is_grant(self) -> bool:
        """Whether it can be taken away before the effect has happened (C62)."""
        return self not in (Permission.NOT_NEEDED, Permission.DECISION, Permission.CALLER)


class Decision(Struct, frozen=True):
    """A decision on a proposal; for a question, `comment` is the answer."""

    ruling: DecisionKind
    comment: str = ""
    principal: str = ""
    time_ms: int = 0
    contents: Mapping[str, str] = field(default_factory=dict)
    """Contents to write instead of the proposed ones, by path, until the effect includes them."""
    edited: tuple[str, ...] = ()
    """Paths whose content was replaced; an empty path means the only change."""
    client_runs: bool = False
    """Whether the client that decided runs the command itself."""
    tool_failed: bool = False
    """Whether the tool of a client failed; `contents` are its result."""
