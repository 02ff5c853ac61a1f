"""Decisions on proposals, as the record of the command stores them.

Source: rows RU249-RU255; decisions C14, C20.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from turnwright_values.types import DecisionKind


class Decision(Struct, frozen=True):
    """A decision on a proposal; for a question, `comment` is the answer. Its contents are by path here."""

    kind: DecisionKind
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
    decider: str = ""
    """Who decided, as the store reads it."""
