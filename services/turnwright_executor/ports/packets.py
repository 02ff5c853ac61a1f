"""What the executor needs from the assembler: what the model will read."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Protocol

from msgspec import Struct, field

from turnwright_core.differences import Copied
from turnwright_core.entries import Cursor, EntryWrite
from turnwright_core.runs import Turn
from turnwright_executor.ports.address import RunAddress


class PacketMessage(Struct, frozen=True):
    """One message for the model: `system` or `user`, and its text in pieces."""

    role: str
    pieces: tuple[str, ...]
    changes: tuple[Copied | str, ...]
    """The pieces by what differs from the packet that this one was based on."""

    @property
    def text(self) -> str:
        """The pieces joined."""
        return "".join(self.pieces)


class Packet(Struct, frozen=True):
    """What the model will read, and what the assembler wants written before that."""

    messages: tuple[PacketMessage, ...]
    effects: tuple[EntryWrite, ...]
    overflow: bool
    digest: str
    tokens: int
    ceiling: int
    """Tokens that it may take; 0: not known."""
    cursor: Cursor
    effects_chars: float = 0
    """Code points that effects brought at most which were committed with it and are not listed any more."""
    shows: Mapping[str, str] = field(default_factory=dict)
    """Texts that are new in it and show the body of an entry, each with the path of that: for the store."""
    render_version: str = ""
    """What made its bytes, plugins among it; empty for one that was read back."""
    plugins: tuple[str, ...] = ()
    """Plugins that took part: what a turn brings may take more room then than is known here."""


class StoredPacket(Struct, frozen=True):
    """A packet that was assembled here and stored: the next one is told by what differs from it."""

    turn: int
    digest: str
    pieces: tuple[str, ...]
    """Of all messages."""

    @classmethod
    def of(cls, turn: int, packet: Packet) -> StoredPacket:
        """The packet that was stored for a turn."""
        return cls(turn, packet.digest, tuple(chain.from_iterable(message.pieces for message in packet.messages)))


class Packets(Protocol):
    """The assembler."""

    async def assemble(
        self,
        address: RunAddress,
        turn: Turn,
        at_least: Cursor | None,
        calibration: float,
        base: StoredPacket | None,
    ) -> Packet:
        """The packet of a turn, by what differs from `base` where the assembler has it too. Raises TurnwrightError."""
        ...

    async def check_budget(
        self, address: RunAddress, turn: Turn, at_least: Cursor | None, calibration: float
    ) -> tuple[EntryWrite, ...]:
        """What to write where a turn brought more than the next packet may have. Raises TurnwrightError."""
        ...
