"""Packets, as the assembler sends them and their owner stores them: in pieces, new ones and copied ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field

from turnwright_core.delta_encoding import Copied


class PacketMessage(Struct, frozen=True):
    """A message of a packet, or a part of one: new pieces, and runs of pieces of the base packet."""

    role: str
    pieces: tuple[Copied | str, ...]
    shows: Mapping[str, str] = field(default_factory=dict)
    """Texts that show the body of an entry, each with its path."""


class TurnPacket(Struct, frozen=True, dict=True):
    """The packet of a turn."""

    turn: int
    messages: tuple[PacketMessage, ...]
    base_turn: int = 0
    """The turn of the base packet; 0: none."""
    note: str = ""
    """A note of its owner, opaque to the store."""
    again: bool = False
    """Only count another call with the stored packet; everything but what it reserves is empty."""
    reserve_tokens: int = 0
    """Tokens that the call may take."""
    reserve_cost_usd: float = 0.0
    """What these may cost, in US dollars; 0: not known."""

    @cached_property
    def texts(self) -> list[str]:
        return [piece for message in self.messages for piece in message.pieces if isinstance(piece, str)]

    @cached_property
    def shows(self) -> dict[str, str]:
        """Those of all messages."""
        return {text: path for message in self.messages for text, path in message.shows.items()}

    @cached_property
    def copies(self) -> list[Copied]:
        """The runs of pieces that all messages copy."""
        return [piece for message in self.messages for piece in message.pieces if isinstance(piece, Copied)]

    @property
    def length(self) -> int:
        """Number of pieces, including copied ones."""
        return len(self.texts) + sum([copied.count for copied in self.copies])
