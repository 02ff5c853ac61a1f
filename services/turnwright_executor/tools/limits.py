"""Settings of the tools, with their units."""

from __future__ import annotations

from msgspec import Struct


class ToolLimits(Struct, frozen=True):
    """The settings of the tools. Source: RU221, RU297; architecture 6."""

    known_tokens_max: int = 512
    """Longest body of a `known://` entry that a model writes, in tokens (C17)."""
    token_divisor: int = 2
    """Characters per token, as the assembler counts them."""
    matches_max: int = 1000
    """Most entries that one pattern acts upon."""
    command_timeout_s: float = 300.0
    """Longest run of a shell command, in seconds."""
    beat_s: float = 5.0
    """Seconds between heartbeats of a command without a lease: the store ends streams that are silent for long."""
    prefetch_max: int = 3
    """Pages that a search opens at once; 0: none."""
    web_hosts: tuple[str, ...] = ()
    """Patterns of hosts whose pages are fetched without asking."""
    prefetch_timeout_s: float = 10.0
    """Seconds that a search waits for these pages; the rest is only listed."""
    skill_files_max: int = 200
    """Most files of a skill."""
    skill_bytes_max: int = 4 * 1024 * 1024
    """Most bytes of a skill, unpacked; and of the archive that it comes in."""
