"""Fixed content of packets, whole and never demoted: plans, their deltas, and events.

They have a single form, whatever their visibility, because a summarized plan is useless. `s_tokens` is their whole
cost, and demoting them frees nothing. Events are folded instead (see domain.folding). Source: rows RP05-RP07, RH01,
RH03, RH05; decisions C34, C46, C47; ADR 28.
"""

from __future__ import annotations

import json
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import Entry

from turnwright_assembler.domain.envelope import element, fenced
from turnwright_core.events import COMPRESSION_SOURCE, Subkind
from turnwright_core.plans.plan import PlanPart, part_of

FIXED_SCHEMES: Final = frozenset({"plan", "event"})

_JSON_ESCAPES: Final = str.maketrans(
    {chr(code): f"\\u{code:04x}" for code in (*b"<>&", 0x7F, 0x85, 0x2028, 0x2029, *range(0xD800, 0xE000))}
)
"""What can pretend to be markup, end a line, or not be said in UTF-8. In JSON it stands in strings only."""


class EventPart(Struct, frozen=True):
    """What an event is, apart from its message."""

    subkind: str
    source: str
    payload: object


def plan_part(entry: Entry) -> PlanPart | None:
    """A plan with its latest version, or a delta; None for a version that was replaced."""
    part = part_of(entry.path)
    if part.sequence:
        return part
    return None if part.version else replace(part, version=entry.attributes["version"])


def event_of(entry: Entry) -> EventPart | None:
    """The event in an entry; None if the delta that it announces says the same.

    Reports of evictions from a transcript are for clients only.
    """
    event = entry.attributes.get("event")
    if not isinstance(event, dict) or event.get("subkind") == Subkind.PLAN_DELTA.value:
        return None
    if event.get("source") == COMPRESSION_SOURCE and event.get("subkind") == Subkind.SUMMARIZATION_MARKER.value:
        return None
    return EventPart(str(event.get("subkind") or ""), str(event.get("source") or ""), event.get("payload"))


def plan_text(entry: Entry, part: PlanPart) -> str:
    """`<plan>`, or `<plan-update>` for a delta."""
    shown: dict[str, str | int] = {"plan_id": part.plan_id, "version": part.version}
    if part.sequence:
        return element("plan-update", shown | {"sequence": part.sequence}, fenced(entry.path, entry.body))
    return element("plan", shown | {"mode": entry.attributes["mode"]}, fenced(entry.path, entry.body))


def event_text(entry: Entry, event: EventPart) -> str:
    """`<event>`: the payload as one line of JSON without markup, then the message."""
    return event_element(entry.path, event, entry.body)


def event_element(path: str, event: EventPart, body: str) -> str:
    """The same for an event without its entry."""
    payload = f"<payload>{_json_line(event.payload)}</payload>"
    lines = (payload, fenced(path, body)) if body else (payload,)
    return element("event", {"subkind": event.subkind, "source": event.source}, "\n".join(lines))


def _json_line(payload: object) -> str:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).translate(_JSON_ESCAPES)
