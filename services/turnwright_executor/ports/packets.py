"""What the executor needs from the assembler: what the model will read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Protocol

from msgspec import Struct, field

from turnwright_core.differences import Copied
from turnwright_core.entries import Cursor, EntryWrite
from turnwright_core.limits import VIEW_CHANGES_MAX
from turnwright_core.owner_calls import ViewChange
from turnwright_core.runs import Turn
from turnwright_executor.domain.addresses import RunAddress


class PacketMessage(Struct, frozen=True):
    """One message for the model: `system` or `user`, and its text in pieces; `tools` is what it may call, as JSON."""

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
    plan_tokens: int = 0
    """Of `tokens`, those of plans, which nothing makes fewer; 0 for one that was read back."""
    calibration: float = 0.0
    """What it was assembled with; 0: unknown."""


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


class ViewChanges:
    """What the owner of a run has written since its latest packet, as far as the store told it without a gap.

    The assembler is told it with the next packet, and need not read it. Mutable: grows with each write.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self._changes: list[ViewChange] = []
        self._at: Cursor | None = None

    @property
    def is_unbroken(self) -> bool:
        """Whether all is known: else there is no use in being told more."""
        return self._at is not None

    def begin(self, cursor: Cursor) -> None:
        """A packet shows this moment."""
        self._changes, self._at = [], cursor

    def add(self, cursor: Cursor, change: ViewChange | None) -> None:
        """A write has come to this moment. Where it was not told what that changed, a gap is left."""
        if change and self._at and len(self._changes) < VIEW_CHANGES_MAX:
            self._changes.append(change)
            self._at = cursor
        elif cursor != self._at:
            self._changes, self._at = [], None

    def all(self) -> Sequence[ViewChange]:
        """The changes in order; none where there is a gap."""
        return self._changes


class Packets(Protocol):
    """The assembler."""

    async def assemble(
        self,
        address: RunAddress,
        turn: Turn,
        at_least: Cursor | None,
        calibration: float,
        base: StoredPacket | None,
        view_changes: Sequence[ViewChange] = (),
    ) -> Packet:
        """The packet of a turn, by what differs from `base` where the assembler has it too. Raises TurnwrightError.

        `view_changes` is what was written since the packet before.
        """
        ...

    async def check_budget(
        self, address: RunAddress, turn: Turn, at_least: Cursor | None, calibration: float
    ) -> tuple[EntryWrite, ...]:
        """What to write where a turn brought more than the next packet may have. Raises TurnwrightError."""
        ...
