"""Events: what happened around a run, told to the model and to watchers as entries of the scheme `event`.

An event is written in the transaction of its cause, so neither exists without the other, and there are no duplicates.
Its payload is for programs; its body is one plain sentence. Source: architecture 9; rows RH01, RH02, RH04; decision
C47.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Final

from msgspec import Struct
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Entry, State, Tier, Visibility

from turnwright_core.json_text import JsonObject
from turnwright_core.limits import EVENT_PAYLOAD_BYTES_MAX, EVENT_SOURCE_CHARS_MAX, PATH_CHARS_MAX
from turnwright_core.value_methods import to_attributes_json


class Subkind(Enum):
    """The kinds of events (RH02)."""

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
    """An event reported by the runtime. `slug` distinguishes it from others of its subkind in its turn."""

    subkind: Subkind
    source: str
    """Who reports it; packets keep the latest events of each source (RH03)."""
    payload: JsonObject
    sentence: str
    slug: str


def event_path(turn: int, subkind: Subkind, slug: str) -> str:
    """Path of an event; a long slug is truncated, with room for a number that keeps it unique."""
    return f"event://turn_{turn}/{subkind.value}/{slug}"[: PATH_CHARS_MAX - _NUMBER_CHARS]


def event_write(turn: int, event: RunEvent) -> EntryWrite:
    """The write of an event. Long values are truncated, because its cause must not fail because of it."""
    fields = {
        "subkind": event.subkind.value,
        "source": event.source[:EVENT_SOURCE_CHARS_MAX],
        "payload": truncate_payload(event.payload),
    }
    change = SetEntry(
        event.sentence, to_attributes_json({"event": fields}), visibility=Visibility.VISIBLE, state=State.RESOLVED
    )
    return EntryWrite(event_path(turn, event.subkind, event.slug), change, Tier.SYSTEM)


REWIND_SLUG: Final = "rewind"
"""Slug of the event about a conversation that was taken back."""


def is_rewind(entry: Entry) -> bool:
    if entry.scheme != "event":
        return False
    kind, _, slug = entry.path.partition(f"/{Subkind.SYSTEM_NOTICE.value}/")
    return slug.partition("+")[0] == REWIND_SLUG and kind.startswith("event://turn_")


def slug_of(record: str) -> str:
    """Slug of an event about a record: the part of the record's path after `log://turn_N/`."""
    return record.removeprefix("log://").partition("/")[2] or record


def payload_bytes(payload: object) -> int:
    """Length of a payload in bytes of JSON text."""
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    # JSON can contain an unpaired surrogate, which UTF-8 cannot encode: it counts as its escape sequence.
    return len(text.encode(errors="backslashreplace"))


COMPRESSION_SOURCE: Final = "transcript"
"""Source of the markers that report what gave way in a transcript: clients read them, and no model."""

CUT: Final = "[cut]"
"""Marks the end of a truncated text or list in a payload."""


def truncate_payload(payload: JsonObject) -> JsonObject:
    """The payload, with its longest texts and lists truncated until it fits."""
    fitting, longest = payload, EVENT_PAYLOAD_BYTES_MAX
    while payload_bytes(fitting) > EVENT_PAYLOAD_BYTES_MAX and longest > 1:
        longest //= 2
        fitting = {key: _cut(value, longest) for key, value in payload.items()}
    return fitting


def _cut(value: object, longest: int) -> object:
    if isinstance(value, str):
        return value if len(value) <= longest else f"{value[:longest]}{CUT}"
    if isinstance(value, list | tuple):
        kept = [_cut(one, longest) for one in value[:longest]]
        return [*kept, CUT] if len(value) > longest else kept
    return value
