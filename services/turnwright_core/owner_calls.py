"""Calls that a run's owner makes in every turn, to the store and the assembler, as values.

Services of one process pass these on as they are; over the network they become the messages that each one names
(turnwright_core.wire.owner_calls).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

from msgspec import Struct, field

from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.delta_encoding import Copied
from turnwright_core.entries import Cursor, Entry, EntryWrite, SetEntry
from turnwright_core.runs import CompressionStrength, Loop, LoopEnd, Run, Turn, TurnRequest, TurnResult


class ReturnView(IntEnum):
    """Which change of the run's view an answer tells, if any: what the assembler need not read then."""

    NONE = 0
    PACKET = 1
    """Of what a packet shows."""
    MESSAGES = 2
    """Of what messages are made of."""


_WRITE_BYTES: Final = 200
"""Estimated size of a write in bytes, besides its texts."""


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
    """Only count another call with the stored packet; everything else is empty."""

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

    `loop_end` also ends the loop, `next` opens the following turn, or the loop's first. `release` also releases the
    run's lease, unless another loop is queued.
    """

    turn: int
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
    """WriteEntriesRequest."""

    project: str
    run: str
    epoch: int | None
    writes: Sequence[EntryWrite]
    durability: int = 0
    run_status: int = 0
    packet: TurnPacket | None = None
    return_view_change: ReturnView = ReturnView.NONE
    request_id: str = ""

    @property
    def weight_bytes(self) -> int:
        return writes_bytes(self.writes) + (sum(map(len, self.packet.texts)) if self.packet else 0)


class EntriesWritten(Struct, frozen=True):
    """WriteEntriesResponse."""

    revisions: tuple[int, ...]
    paths: tuple[str, ...]
    cursor: Cursor
    abort_requested: bool = False
    view_change: ViewChange | None = None


class AssembleCall(Struct, frozen=True):
    """AssembleRequest, and the same fields of CheckBudgetRequest: the packet to build."""

    project: str
    run: str
    turn: int
    loop: int
    context_length: int
    at_least: Cursor | None = None
    calibration: float = 0.0
    """Reported over estimated tokens of the previous turn; 0: unknown."""
    base_digest: str = ""
    """Digest of the packet that the caller has; the answer may copy from it."""
    view_changes: Sequence[ViewChange] = ()
    """What the caller has written since, in order."""
    transcript: bool = False
    """Whether the messages of the run are wanted instead of a packet of sections."""
    output_reserve: int = 0
    """Tokens of the window that a transcript leaves for the reply at least."""
    edits: Sequence[PromptEdit] = ()
    request: TurnRequest | None = None
    """Settings of the turn, for plugins that edit its prompt; None: they are not called."""
    prefill: bool = False
    """Whether the model continues a message of the assistant at the end."""
    compaction: bool = False
    """Whether the transcript is for a turn that summarizes."""


class PacketReport(Struct, frozen=True):
    """What is known of an assembled packet."""

    digest: str
    tokens: int
    ceiling: int
    chars: int
    cursor: Cursor
    effects: tuple[EntryWrite, ...] = ()
    overflow: bool = False
    render_version: str = ""
    plugins: tuple[str, ...] = ()
    plan_tokens: int = 0
    """The part of the packet's tokens that plans and their deltas take."""
    compression: CompressionStrength = CompressionStrength.UNSPECIFIED
    """How far a transcript is compressed."""
    unfit: tuple[tuple[str, int], ...] = ()
    """What takes most room of a transcript that does not fit, with its tokens."""
    edits: tuple[PromptEdit, ...] = ()
    """Those of the prompt as they were applied."""
    edit_tokens: int = 0
    """The part of the packet's tokens that edits take."""
    after_reply: tuple[EntryWrite, ...] = ()
    """The writes by which the reply, a summary, replaces messages."""
    replaced_chars: int = 0
    """Code points of the messages that the reply, a summary, replaces."""


class AssembledPart(Struct, frozen=True):
    """AssembleResponse: messages, or parts of them, and at last the report."""

    messages: tuple[PacketMessage, ...]
    report: PacketReport | None = None


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
    send_ms: int = 0
    """When it was sent, in milliseconds since 1970; 0: not said."""


def writes_bytes(writes: Sequence[EntryWrite]) -> int:
    return sum([_WRITE_BYTES + 2 * len(write.path) + _texts_bytes(write.change) for write in writes])


def _texts_bytes(change: object) -> int:
    if not isinstance(change, SetEntry):
        return len(getattr(change, "text", ""))
    texts = (change.body, change.attributes_json, change.merge_attributes_json, change.record)
    return sum(map(len, filter(None, texts)))
