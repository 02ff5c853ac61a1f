"""The port to the assembler: what the model will read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Protocol

from msgspec import Struct
from turnwright_values.assembler import CheckBudgetResponse, PacketReport
from turnwright_values.types import Cursor, Turn, ViewChange, ViewFilter

from turnwright_core.chat.message import Message
from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.chat.transcript import from_json_lines
from turnwright_core.limits import VIEW_CHANGES_MAX
from turnwright_core.packet_digest import CONVERSATION
from turnwright_core.packet_values import PacketMessage
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.tokens import TokenRate


class AssembledMessage(Struct, frozen=True, dict=True):
    """One message for the model: `system` or `user` with its text in pieces; `tools` holds tool definitions as JSON."""

    role: str
    pieces: tuple[str, ...]
    delta: PacketMessage
    """The same as a delta of the base packet, for the store."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @cached_property
    def conversation(self) -> Sequence[Message]:
        """The messages of a transcript, or of edits; none of what is a message itself."""
        return from_json_lines(self.text) if self.role == CONVERSATION else ()


class Packet(Struct, frozen=True):
    """What the model will read, and what the assembler reports of it.

    Of a packet that was read from the store, the report has what its note has; its effects were committed with it.
    """

    messages: tuple[AssembledMessage, ...]
    report: PacketReport
    effects_chars: float = 0
    """Upper bound in code points for effects that were committed with it and are no longer listed."""
    rate: TokenRate = TokenRate()
    """With which it was assembled."""

    @property
    def expected_tokens(self) -> int:
        """The tokens that its vendor is expected to count."""
        return round(self.report.tokens * (self.rate.calibration or 1.0))


class StoredPacket(Struct, frozen=True):
    """The latest packet that was assembled here and stored: the next one is sent as a delta of it."""

    turn: int
    digest: str
    pieces: tuple[str, ...]
    """Of all messages."""

    @classmethod
    def of(cls, turn: int, packet: Packet) -> StoredPacket:
        return cls(
            turn, packet.report.digest, tuple(chain.from_iterable(message.pieces for message in packet.messages))
        )


class ViewChanges:
    """What the owner of a run has written since its latest packet, if the store returned it without a gap.

    The assembler gets it with the next packet, and need not read it. Mutable: grows with each write.
    """

    def __init__(self, kind: ViewFilter = ViewFilter.PACKET) -> None:
        """Nothing is known yet. `kind` selects the changes to collect."""
        self.kind = kind
        self._changes: list[ViewChange] = []
        self._at: Cursor | None = None

    @property
    def wanted(self) -> ViewFilter:
        """What to ask for with the next write: where a gap is left, there is no use in being told more."""
        return ViewFilter.UNSPECIFIED if self._at is None else self.kind

    def begin(self, cursor: Cursor) -> None:
        """A packet shows this moment: start again from here."""
        self._changes, self._at = [], cursor

    def add(self, cursor: Cursor, change: ViewChange | None) -> None:
        """Add a write. If the store did not return what it changed, that leaves a gap.

        There is none before what begins with the run.
        """
        if change and not change.before.run_revision:
            self.begin(change.before)
        if change and self._at and len(self._changes) < VIEW_CHANGES_MAX:
            self._changes.append(change)
            self._at = cursor
        elif cursor != self._at:
            self._changes, self._at = [], None

    def all(self) -> Sequence[ViewChange]:
        """The changes in order; empty if there is a gap."""
        return self._changes


class Packets(Protocol):
    """The assembler."""

    async def assemble(
        self,
        address: RunAddress,
        turn: Turn,
        at_least: Cursor | None,
        rate: TokenRate,
        base: StoredPacket | None,
        view_changes: Sequence[ViewChange] = (),
        edits: Sequence[PromptEdit] = (),
        *,
        plugins: bool = True,
        prefill: bool = False,
    ) -> Packet:
        """The packet of a turn, as a delta of `base` if the assembler still has that. Raises TurnwrightError.

        `view_changes` are the writes since the previous packet. Without `plugins`, the edits are all that is applied;
        `prefill`: the model continues a message of the assistant at the end.
        """

    async def check_budget(
        self,
        address: RunAddress,
        turn: Turn,
        at_least: Cursor | None,
        calibration: float,
        edits: Sequence[PromptEdit] = (),
    ) -> CheckBudgetResponse:
        """Whether what the turn added fits into the next packet, with edits like these. Raises TurnwrightError."""
        ...
