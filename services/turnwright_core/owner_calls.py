"""Calls that a run's owner makes in every turn, to the store and the assembler, as values.

Services of one process pass these on as they are; over the network they become the messages that each one names
(turnwright_core.wire.owner_calls).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from msgspec import Struct, field

from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.delta_encoding import Copied
from turnwright_core.entries import Cursor, Entry, EntryWrite, SetEntry
from turnwright_core.runs import Loop, LoopEnd, Run, Turn, TurnRequest, TurnResult


class ReturnView(IntEnum):
    """Which change of the run's view an answer tells, if any: what the assembler need not read then."""

    NONE = 0
    PACKET = 1
    """Of what a packet shows."""
    MESSAGES = 2
    """Of what messages are made of."""


_WRITE_BYTES: Final = 200
"""Estimated size of a write in bytes, besides its texts."""


class StoredMessage(Struct, frozen=True):
    """One message of a packet: new pieces, and runs of pieces of the base packet."""

    role: str
    pieces: tuple[Copied | str, ...]


class TurnPacket(Struct, frozen=True):
    """The packet of a turn."""

    turn: int
    messages: tuple[StoredMessage, ...]
    base_turn: int = 0
    """The turn of the base packet; 0: none."""
    note: str = ""
    """A note of its owner, opaque to the store."""
    shows: Mapping[str, str] = field(default_factory=dict)
    """New texts that show the body of an entry, each with its path."""
    again: bool = False
    """Only count another call with the stored packet; everything else is empty."""

    @property
    def texts(self) -> list[str]:
        """The new pieces of all messages."""
        return [piece for message in self.messages for piece in message.pieces if isinstance(piece, str)]

    @property
    def copies(self) -> list[Copied]:
        """The runs of pieces that all messages copy."""
        return [piece for message in self.messages for piece in message.pieces if isinstance(piece, Copied)]

    @property
    def length(self) -> int:
        """Number of pieces, including copied ones."""
        return len(self.texts) + sum([copied.count for copied in self.copies])


class ViewChange(Struct, frozen=True):
    """The changes of a run's view by a write, from one cursor to another, in feed order."""

    before: Cursor
    after: Cursor
    entries: Sequence[Entry]
    removed_paths: Sequence[str]
    schemes_version: str = ""
    """Version of the registered schemes that it was made with."""
    messages: bool = False
    """Whether it is about what messages are made of, else what a packet shows."""


class TurnStart(Struct, frozen=True):
    """How a turn begins: its settings, and the entries written with it."""

    request: TurnRequest
    writes: Sequence[EntryWrite] = ()


class TurnEnd(Struct, frozen=True):
    """How a turn ends: its number (0: the loop has no open one), its result, and the entries written with it.

    `loop_end` also ends the loop, `next` opens the following turn. `release` also releases the run's lease, unless
    another loop is queued.
    """

    number: int
    result: TurnResult | None = None
    writes: Sequence[EntryWrite] = ()
    loop_end: LoopEnd | None = None
    next: TurnStart | None = None
    release: bool = False


class EndTurnCall(Struct, frozen=True):
    """EndTurnRequest."""

    project: str
    run: str
    epoch: int
    end: TurnEnd
    schemes_version: str = ""
    return_view_change: ReturnView = ReturnView.NONE

    @property
    def weight_bytes(self) -> int:
        """About how many bytes its texts take."""
        return writes_bytes(self.end.writes) + (writes_bytes(self.end.next.writes) if self.end.next else 0)


class TurnEnded(Struct, frozen=True):
    """EndTurnResponse."""

    run: Run
    loop: Loop
    cursor: Cursor
    abort_requested: bool = False
    next: Turn | None = None
    schemes: Any | None = None
    """A SchemeRegistry, if the caller has another version."""
    view_change: ViewChange | None = None
    released: bool = False


class WriteEntriesCall(Struct, frozen=True):
    """WriteEntriesRequest of an owner: without a request_id."""

    project: str
    run: str
    epoch: int | None
    writes: Sequence[EntryWrite]
    durability: int = 0
    run_status: int = 0
    packet: TurnPacket | None = None
    return_view_change: ReturnView = ReturnView.NONE

    @property
    def weight_bytes(self) -> int:
        """About how many bytes its texts take."""
        return writes_bytes(self.writes) + (sum(map(len, self.packet.texts)) if self.packet else 0)


class EntriesWritten(Struct, frozen=True):
    """WriteEntriesResponse."""

    revisions: tuple[int, ...]
    paths: tuple[str, ...]
    cursor: Cursor
    abort_requested: bool = False
    view_change: ViewChange | None = None


class AssembleCall(Struct, frozen=True):
    """AssembleRequest, and the same fields of CheckBudgetRequest."""

    project: str
    run: str
    turn: int
    loop: int
    context_length: int
    at_least: Cursor | None
    calibration: float
    base_digest: str = ""
    view_changes: Sequence[ViewChange] = ()
    transcript: bool = False
    output_reserve: int = 0
    edits: Sequence[PromptEdit] = ()
    request: TurnRequest | None = None
    prefill: bool = False
    compaction: bool = False


class WatchChangesCall(Struct, frozen=True):
    """WatchChangesRequest."""

    project: str
    run: str
    after: Cursor | None
    filter: int
    body_bytes_max: int = 0
    whole_schemes: tuple[str, ...] = ()


class RunChanges(Struct, frozen=True):
    """Changes of a run since the previous message; a heartbeat has only the cursor."""

    cursor: Cursor
    entries: Sequence[Entry] = field(default_factory=list)
    removed_paths: Sequence[str] = field(default_factory=list)
    run: Run | None = None
    loops: Sequence[Loop] = field(default_factory=list)
    turns: Sequence[Turn] = field(default_factory=list)
    abort_requested: bool = False
    """Whether an abort of the active loop was requested; valid together with `run`."""


def writes_bytes(writes: Sequence[EntryWrite]) -> int:
    """Approximate size of writes, in bytes."""
    return sum([_WRITE_BYTES + 2 * len(write.path) + _texts_bytes(write.change) for write in writes])


def _texts_bytes(change: object) -> int:
    if not isinstance(change, SetEntry):
        return len(getattr(change, "text", ""))
    attributes = len(change.attributes_json or "") + len(change.merge_attributes_json or "")
    return len(change.body or "") + attributes + len(change.record or b"")
