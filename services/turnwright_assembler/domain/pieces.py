"""What a prompt consists of, piece by piece: for whoever asks why something stands in it, or does not.

A piece is a message of a transcript, a block of a packet, or what the runtime adds: the system message, the tools, the
frame of a section. In the order of the prompt; what was left out comes at its place, with no characters.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class Why(Enum):
    """Why a piece stands in a prompt."""

    FRAME = "frame"
    """The runtime adds it: instructions, tools, tags of sections, the budget."""
    TASK = "task"
    """The latest prompt, which is never left out."""
    EXEMPT = "exempt"
    """A plan or an event, which is never compressed."""
    UNREAD = "unread"
    """It came after the latest reply: the model has not read it yet."""
    VISIBLE = "visible"
    """An entry that is shown whole, until the model or the budget demotes it."""
    HISTORY = "history"
    """An earlier message."""


class Form(Enum):
    """How much of it stands there."""

    WHOLE = "whole"
    SUMMARIZED = "summarized"
    """Condensed: an outline, a beginning, or both ends of it."""
    STUB = "stub"
    """A line that says how to read it again."""
    LEFT_OUT = "left_out"
    """Nothing."""


class PieceReport(Struct, frozen=True):
    """One piece of a prompt. `path` is its entry, empty for what the runtime adds."""

    path: str
    kind: str
    """A section of a packet, or a kind of message in lower case."""
    turn: int
    message: int
    """0-based index of the message of the packet that it is in, such as `system`, `user` or `conversation`."""
    begin: int
    """Where it begins in the text of that message, in code points."""
    chars: int
    tokens: int
    why: Why
    form: Form = Form.WHOLE
    step: str = ""
    """What made it smaller: a stage of the limit (`duplicates`, `results`, `history`) or of the ladder.

    Empty: nothing, or the model itself.
    """
