"""Settings of the tools, with their units."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """What the tools are set to. Source: RU221, RU297; architecture 6."""

    known_tokens_max: int = 512
    """Longest body of a `known://` entry that a model writes, in tokens (C17)."""
    matches_max: int = 1000
    """Most entries that one pattern acts upon."""
    listed_max: int = 200
    """Most lines that the record of a command lists; a preview lists all matches."""
    command_timeout_s: float = 300.0
    """Longest run of a shell command, in seconds."""
    beat_s: float = 5.0
    """Seconds between two signs of life of a command that no lease holds: the store ends what is silent for long."""
