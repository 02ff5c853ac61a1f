"""Entries, the unit of stored state, and the writes that change them.

The enums have the numbers of their protobuf counterparts, so conversion is a cast. Source: architecture 3; rows
RU015-RU021, RU061, decisions C10, C26.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct


class Visibility(IntEnum):
    """How much of an entry the model sees. UNSPECIFIED in a write: keep the current one."""

    UNSPECIFIED = 0
    VISIBLE = 1
    SUMMARIZED = 2
    ARCHIVED = 3


class State(IntEnum):
    """The life cycle of an entry. UNSPECIFIED in a write: keep the current one."""

    UNSPECIFIED = 0
    RECORDED = 1
    PROPOSED = 2
    STREAMING = 3
    RESOLVED = 4
    FAILED = 5
    CANCELLED = 6

    @property
    def is_settled(self) -> bool:
        return self in (State.RESOLVED, State.FAILED, State.CANCELLED)


class Tier(IntEnum):
    """The privilege level of a writer. For rpcs a tier includes the lower ones; in a scheme's list it does not."""

    UNSPECIFIED = 0
    MODEL = 1
    CLIENT = 2
    PLUGIN = 3
    SYSTEM = 4


# Each row read looks up one of each, and enum look-up by value is slow (it goes through the metaclass).
VISIBILITIES: Final = {member.value: member for member in Visibility}
"""Visibilities by number."""

STATES: Final = {member.value: member for member in State}
"""States by number."""

TIERS: Final = {member.value: member for member in Tier}
"""Tiers by number."""

STATUS_OF_STATE: Final = {
    State.RECORDED: 100,
    State.STREAMING: 102,
    State.RESOLVED: 200,
    State.PROPOSED: 202,
    State.CANCELLED: 499,
    State.FAILED: 500,
}
"""HTTP status of a state if the outcome has no code (C10)."""


def status_of(state: State, outcome: str = "") -> int:
    """HTTP status of an entry, 100 to 599: the code in its outcome (`word:code`), else that of its state.

    Source: RU062; C10, C26.
    """
    if state in (State.FAILED, State.CANCELLED):
        code = outcome.rpartition(":")[2]
        if len(code) == 3 and code.isascii() and code.isdecimal() and "1" <= code[0] <= "5":
            return int(code)
    return STATUS_OF_STATE.get(state, 200)


class Cursor(Struct, frozen=True):
    """A moment of a run's state: the revision of each scope that it reads. Exclusive."""

    incarnation: str
    run_revision: int
    project_revision: int
    global_revision: int


class Entry(Struct, frozen=True):
    """An entry as one run sees it. `body` may be truncated or absent; `body_size_bytes` is always the full length."""

    path: str
    scheme: str
    scope: str
    body: str
    body_size_bytes: int
    attributes_json: str
    visibility: Visibility
    state: State
    outcome: str
    writer: Tier
    turn: int
    loop: int
    position: int
    write_count: int
    revision: int
    hash: str
    update_ms: int
    record: bytes = b""
    """State of a command, a serialized turnwright.types.v1.CommandRecord; empty for all other entries."""

    @property
    def status(self) -> int:
        return status_of(self.state, self.outcome)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes, parsed at each access."""
        return parse_attributes(self.attributes_json)


class _Change(Struct, frozen=True):
    """A change of the entry itself; a copy or a move also names another path."""

    to: ClassVar[None] = None


class SetEntry(_Change, frozen=True, tag=True):
    """Create or update an entry; None and UNSPECIFIED keep the current value."""

    body: str | None = None
    attributes_json: str | None = None
    visibility: Visibility = Visibility.UNSPECIFIED
    initial_visibility: Visibility = Visibility.UNSPECIFIED
    state: State = State.UNSPECIFIED
    outcome: str | None = None
    merge_attributes_json: str | None = None
    """A JSON merge patch for the attributes; applied after `attributes_json`."""
    record: bytes | None = None
    """State of a command, as in Entry; empty: none. Only the runtime writes it."""


class AppendEntry(_Change, frozen=True, tag=True):
    """Append to a streaming body.

    `offset` is the body's length in bytes before the text: bytes that the body already has are not appended again.
    """

    text: str
    offset: int | None = None


class RemoveEntry(_Change, frozen=True, tag=True):
    """Remove the entry from the run's view."""


class CopyEntry(Struct, frozen=True, tag=True):
    """Create another entry with the same content; UNSPECIFIED: the visibility of the source."""

    to: str
    visibility: Visibility = Visibility.UNSPECIFIED


class MoveEntry(Struct, frozen=True, tag=True):
    """Create another entry with the same content, and remove this one from the run's view."""

    to: str
    visibility: Visibility = Visibility.UNSPECIFIED


EntryChange = SetEntry | AppendEntry | RemoveEntry | CopyEntry | MoveEntry


class EntryWrite(Struct, frozen=True):
    """One change to one entry, by one writer."""

    path: str
    change: EntryChange
    writer: Tier = Tier.UNSPECIFIED
    expected_revision: int | None = None
    turn: int | None = None
    loop: int | None = None
    granted_tool: str = ""
    """The tool whose effect begins with it although nobody has decided on it; refused if that is not granted."""


def parse_attributes(text: str) -> dict[str, Any]:
    """The attributes of their text; empty for an empty one.

    msgspec takes a third of the time of the standard library, which reads what msgspec refuses: NaN, unpaired
    surrogates and integers of more than 64 bits.
    """
    try:
        parsed: dict[str, Any] = _DECODER.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        parsed = json.loads(text)
    return parsed


def to_attributes_json(attributes: dict[str, Any]) -> str:
    """The canonical text of attributes: compact, keys in the given order, no ASCII escapes.

    msgspec takes a tenth of the time of the standard library, which only handles what msgspec refuses: unpaired
    surrogates and integers of more than 64 bits. NaN would become null.
    """
    try:
        text = _ENCODER.encode(attributes).decode()
    except (TypeError, ValueError, OverflowError):
        text = "null"
    return text if "null" not in text else json.dumps(attributes, ensure_ascii=False, separators=(",", ":"))


_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODER: Final = msgspec.json.Encoder(enc_hook=json.JSONEncoder().default)
