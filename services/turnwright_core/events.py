"""Events: what happened around a run, told to the model and to watchers as entries of their own scheme.

An event has a cause and is written in the transaction of it, so that there is neither one without the other nor two of
one. What it says for programs is its payload; its body is one plain sentence.
Source: architecture 9; rows RH01, RH02, RH04; decision C47.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final

from msgspec import Struct

from turnwright_core.entries import EntryWrite, SetEntry, State, Tier, Visibility, to_attributes_json
from turnwright_core.limits import EVENT_PAYLOAD_BYTES_MAX, EVENT_SOURCE_CHARS_MAX, PATH_CHARS_MAX


class Subkind(Enum):
    """What an event can be (RH02)."""

    MODE_SWITCH = "mode_switch"
    TOOL_DECISION = "tool_decision"
    IDE_CALLBACK = "ide_callback"
    PROCESS_COMPLETED = "process_completed"
    CRON_FIRE = "cron_fire"
    TICK = "tick"
    SUMMARIZATION_MARKER = "summarization_marker"
    VERIFIER_REPORT = "verifier_report"
    CANCELLATION_NOTE = "cancellation_note"
    SYSTEM_NOTICE = "system_notice"
    PLAN_DELTA = "plan_delta"


EVENT_SUBKINDS: Final = frozenset(subkind.value for subkind in Subkind)
"""The names of the subkinds."""


_NUMBER_CHARS: Final = 12


class RunEvent(Struct, frozen=True):
    """What the runtime itself tells. `slug` keeps it apart from others of its subkind in its turn."""

    subkind: Subkind
    source: str
    """Who reports it; what stays of several events in a packet is counted by it (RH03)."""
    payload: dict[str, Any]
    sentence: str
    slug: str


def event_path(turn: int, subkind: Subkind, slug: str) -> str:
    """Where an event stands; a slug that is too long is cut, with room for a number that keeps it apart."""
    return f"event://turn_{turn}/{subkind.value}/{slug}"[: PATH_CHARS_MAX - _NUMBER_CHARS]


def event_write(turn: int, event: RunEvent) -> EntryWrite:
    """The write of an event; what is too long in it is cut, because its cause must not fail of it."""
    said = {
        "subkind": event.subkind.value,
        "source": event.source[:EVENT_SOURCE_CHARS_MAX],
        "payload": fitted(event.payload),
    }
    change = SetEntry(
        event.sentence, to_attributes_json({"event": said}), visibility=Visibility.VISIBLE, state=State.RESOLVED
    )
    return EntryWrite(event_path(turn, event.subkind, event.slug), change, Tier.SYSTEM)


def slug_of(record: str) -> str:
    """The slug of an event about a record: what stands behind `log://turn_N/` keeps the record apart from others."""
    return record.removeprefix("log://").partition("/")[2] or record


def payload_bytes(payload: Any) -> int:
    """How long a payload is, in bytes of JSON text."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    # JSON can name half of a surrogate pair, which UTF-8 cannot say: it counts as its escape.
    return len(text.encode(errors="backslashreplace"))


CUT: Final = "[cut]"
"""What the end of a text or a list in a payload says that was too long."""


def fitted(payload: dict[str, Any], bytes_max: int = EVENT_PAYLOAD_BYTES_MAX) -> dict[str, Any]:
    """The payload, with its longest texts and lists cut as far as it takes to fit."""
    fitting, longest = payload, bytes_max
    while payload_bytes(fitting) > bytes_max and longest > 1:
        longest //= 2
        fitting = {key: _cut(value, longest) for key, value in payload.items()}
    return fitting


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[:longest]}{CUT}"
    if isinstance(value, list | tuple):
        kept = [_cut(one, longest) for one in value[:longest]]
        return [*kept, CUT] if len(value) > longest else kept
    return value
