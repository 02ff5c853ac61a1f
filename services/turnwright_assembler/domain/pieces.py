"""How much of an entry is in a prompt, for explanations."""

from __future__ import annotations

from enum import Enum


class Form(Enum):
    """How much of an entry is in a prompt."""

    WHOLE = "whole"
    SUMMARIZED = "summarized"
    """Condensed: an outline, a beginning, or both ends of it."""
    STUB = "stub"
    """A line that says how to read it again."""
    LEFT_OUT = "left_out"
    """Nothing."""
