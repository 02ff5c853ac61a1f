"""What is noted with a stored transcript, so that the next one can begin with its text.

Between compressions a transcript begins with the bytes of the one before. After a restart it is not made anew from all
of its entries: the text is read, and what was written since. Source: architecture 4; rows RL02.
"""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, encode

from turnwright_core.entries import Cursor
from turnwright_core.runs import CompressionStrength


class Checkpoint(Struct, frozen=True):
    """A transcript that was sent as it follows from the entries of a moment, without edits."""

    render_version: str
    """Of what made it."""
    digest: str
    cursor: Cursor
    """The moment."""
    position: int
    """No entry of that moment has a later one."""
    project_chars: int
    """Code points of the instructions of the project, with which the system message ends."""
    strength: CompressionStrength
    broken_in: int
    """The latest turn in which a compression broke the prefix; 0: none."""

    def to_json(self) -> str:
        return encode(self).decode()


class _Note(Struct, frozen=True):
    checkpoint: str = ""


_CHECKPOINTS: Final = Decoder(Checkpoint)
_NOTES: Final = Decoder(_Note)


def checkpoint_in(note: str, render_version: str) -> Checkpoint | None:
    """The checkpoint in the note of a packet that this version has made; None if there is none."""
    try:
        found = _CHECKPOINTS.decode(_NOTES.decode(note or "{}").checkpoint or "null")
    except DecodeError:
        return None
    return found if found.render_version == render_version else None
