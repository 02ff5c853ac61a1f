"""What the owner of a run says to its store and its assembler in each turn, and is answered, as values.

Services of one process hand these over as they are. On a network they are the messages that each one names; see
turnwright_core.wire.owner_calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from msgspec import Struct, field

from turnwright_core.differences import Copied
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
"""What a write takes beside its texts, generously."""


class StoredMessage(Struct, frozen=True):
    """One message of a packet: its pieces, texts of its own and runs of the base."""

    role: str
    pieces: tuple[Copied | str, ...]


class TurnPacket(Struct, frozen=True):
    """What the model is sent in a turn."""

    turn: int
    messages: tuple[StoredMessage, ...]
    base_turn: int = 0
    """The turn whose packet the copied pieces are of; 0: none are."""
    note: str = ""
    """What its owner wants to know of it later; opaque."""
    shows: Mapping[str, str] = field(default_factory=dict)
    """Texts of its own that show the body of an entry, each with the path of that."""
    again: bool = False
    """Nothing is given: the model is sent the stored packet of the turn once more."""

    @property
    def pieces(self) -> Sequence[Copied | str]:
        """Of all messages."""
        return [piece for message in self.messages for piece in message.pieces]

    @property
    def length(self) -> int:
        """Pieces, those of the base counted too."""
        return sum(1 if isinstance(piece, str) else piece.count for piece in self.pieces)


class ViewChange(Struct, frozen=True):
    """What a write has changed of a run's view between two moments, in the order of the feed."""

    before: Cursor
    after: Cursor
    entries: Sequence[Entry]
    removed: Sequence[str]
    schemes_version: str = ""
    """Of the registered schemes that it goes by."""
    messages: bool = False
    """Whether it is about what messages are made of, else what a packet shows."""


class TurnStart(Struct, frozen=True):
    """What a turn is to begin with: what it runs with, and the entries that are written with it."""

    request: TurnRequest
    writes: Sequence[EntryWrite] = ()


class TurnEnd(Struct, frozen=True):
    """How a turn ends: its number, 0 for a loop without one; its result; what is written with it; what follows.

    `loop_end` ends the loop too, `next` opens the turn after it. `release` gives the run back with the loop's end,
    unless another one waits.
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
    schemes: Any = None
    """A SchemeRegistry, where the caller knows another version."""
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
        pieces = self.packet.pieces if self.packet else ()
        return writes_bytes(self.writes) + sum(len(piece) for piece in pieces if isinstance(piece, str))


class EntriesWritten(Struct, frozen=True):
    """WriteEntriesResponse."""

    revisions: tuple[int, ...]
    paths: tuple[str, ...]
    cursor: Cursor
    abort_requested: bool = False
    view_change: ViewChange | None = None


class AssembleCall(Struct, frozen=True):
    """AssembleRequest, and CheckBudgetRequest as far as it goes."""

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


class WatchChangesCall(Struct, frozen=True):
    """WatchChangesRequest."""

    project: str
    run: str
    after: Cursor | None
    filter: int
    body_bytes_max: int = 0


class RunChanges(Struct, frozen=True):
    """What changed in a run since the last ones, as it is now. A heartbeat has the cursor only."""

    cursor: Cursor
    entries: Sequence[Entry] = field(default_factory=list)
    removed_paths: Sequence[str] = field(default_factory=list)
    run: Run | None = None
    loops: Sequence[Loop] = field(default_factory=list)
    turns: Sequence[Turn] = field(default_factory=list)
    abort_requested: bool = False
    """With the run: whether somebody has asked that the active loop ends."""


def writes_bytes(writes: Sequence[EntryWrite]) -> int:
    """About how many bytes some writes take."""
    return sum(_WRITE_BYTES + 2 * len(write.path) + _set_bytes(write.change) for write in writes)


def _set_bytes(change: object) -> int:
    if isinstance(change, SetEntry):
        texts = (change.body, change.attributes_json, change.merge_attributes_json, change.record)
        return sum(len(text) for text in texts if text)
    return len(getattr(change, "text", ""))
