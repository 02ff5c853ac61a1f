"""Validation of events, beyond the rules for every entry; plans can only be written by their rpcs.

An event is `event://turn_{n}/{subkind}/{slug}`; its content is in its attributes.
Source: rows RH01, RH02; architecture 9.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from turnwright_values.store import SetEntry

from turnwright_core.checks import check_chars, invalid, over_limit
from turnwright_core.events import EVENT_SUBKINDS, payload_bytes
from turnwright_core.limits import EVENT_PAYLOAD_BYTES_MAX, EVENT_SOURCE_CHARS_MAX

_EVENT_PATH: Final = re.compile(r"event://turn_(?:0|[1-9][0-9]*)/(?P<subkind>[a-z_]+)/.+", re.DOTALL)


def check_event(path: str, change: SetEntry) -> None:
    """An event is written once, with all of its fields. Raises INVALID_FIELD, LIMIT_EXCEEDED."""
    if change.merge_attributes_json is not None:
        raise invalid("merge_attributes_json", f"{path} cannot be merged into: write the whole event.")
    if change.attributes_json is None:
        if change.body is not None or change.state:
            raise invalid("attributes_json", f"{path} needs the attribute `event` with subkind, source and payload.")
        return
    subkind = _subkind_of(path, change.attributes_json)
    found = _EVENT_PATH.fullmatch(path)
    if found is None or found["subkind"] != subkind:
        raise invalid("path", f"{path!r} must be event://turn_{{number}}/{subkind}/{{slug}}.")


def _subkind_of(path: str, attributes_json: str) -> str:
    """The subkind of an event that is whole."""
    event = _event_of(attributes_json)
    if event is None or "payload" not in event:
        raise invalid(
            "attributes_json",
            f"{path}: the attribute `event` must be an object with subkind, source and payload (any JSON).",
        )
    subkind, source = event.get("subkind"), event.get("source")
    if not isinstance(subkind, str) or subkind not in EVENT_SUBKINDS:
        raise invalid("subkind", f"{path}: subkind must be one of {', '.join(sorted(EVENT_SUBKINDS))}.")
    if not isinstance(source, str) or not source:
        raise invalid("source", f"{path}: source must be a string that names the source of the event.")
    check_chars("source", source, EVENT_SOURCE_CHARS_MAX)
    actual = payload_bytes(event["payload"])
    if actual > EVENT_PAYLOAD_BYTES_MAX:
        raise over_limit("payload", EVENT_PAYLOAD_BYTES_MAX, actual, "bytes")
    return subkind


def _event_of(attributes_json: str) -> dict[str, Any] | None:
    try:
        attributes = json.loads(attributes_json)
    except (ValueError, RecursionError):
        return None
    event = attributes.get("event") if isinstance(attributes, dict) else None
    return event if isinstance(event, dict) else None
