"""The rules of writes that hold before anything is read: sizes, paths, attributes, events, and who may write what.

Source: architecture 9, 10 (every input has a limit); rows RU031-RU036, RU049, RU051, RU089, RH01, RH02; decisions C9,
C45.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import msgspec
from msgspec.structs import replace
from turnwright_values.store import AppendEntry, CopyEntry, EntryWrite, SetEntry
from turnwright_values.types import Tier

from turnwright_core.checks import (
    check_bytes,
    check_chars,
    check_count,
    check_words,
    invalid,
    over_limit,
    transition_forbidden,
)
from turnwright_core.entries import destination_of
from turnwright_core.errors import InvalidError, Reason, fault
from turnwright_core.events import EVENT_SUBKINDS, payload_bytes
from turnwright_core.limits import (
    ATTRIBUTES_BYTES_MAX,
    EVENT_PAYLOAD_BYTES_MAX,
    EVENT_SOURCE_CHARS_MAX,
    PATH_CHARS_MAX,
    RECORD_BYTES_MAX,
)
from turnwright_core.plans.plan import SCHEME as PLANS
from turnwright_core.schemes import Scheme
from turnwright_core.text import scheme_of
from turnwright_kit.identity.caller import Caller
from turnwright_store.domain.limits import WriteLimits
from turnwright_store.domain.names import records_prefix
from turnwright_store.domain.store_rules import StoreRules

OUTCOME_CHARS_MAX: Final = 256
"""Longest outcome of an entry: `word:code`, with some margin."""

ATTRIBUTES_DEPTH_MAX: Final = 100
"""Deepest nesting of attributes; JSON parsers of other languages fail not far beyond."""

PERMISSION: Final = "permission:403"
"""Outcome of a write that the scheme does not allow (RU034)."""

PLAN_TOOL: Final = "plan_tool:409"
"""Outcome of a write to a plan by another rpc than those for plans (C45)."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_EVENT_PATH: Final = re.compile(r"event://turn_(?:0|[1-9][0-9]*)/(?P<subkind>[a-z_]+)/.+", re.DOTALL)


def check_writes(
    rules: StoreRules, caller: Caller, writes: Sequence[EntryWrite], *, of_plans: bool = False
) -> list[EntryWrite]:
    """Check writes and fill in their writers, before anything is read. Raises the error of the first bad one.

    `of_plans`: they come from a plan rpc; other requests cannot write plans.
    """
    check_count("writes", len(writes), rules.limits.writes_max)
    checked = []
    for write in writes:
        try:
            checked.append(_check(rules, caller, write, of_plans=of_plans))
        except InvalidError as error:
            raise with_path(write, error) from None
    return checked


def with_path(write: EntryWrite, error: InvalidError) -> Exception:
    """The refusal of one write among many: by its path a caller knows whose fault it is."""
    return fault(error.reason, error.message, **{"path": write.path, **error.metadata})


def _check(rules: StoreRules, caller: Caller, write: EntryWrite, *, of_plans: bool) -> EntryWrite:
    limits, change = rules.limits, write.change
    check_path(write.path, limits.path_chars_max)
    writer = writer_of(caller, write.writer)
    if (to := destination_of(change)) is not None:
        check_path(to, limits.path_chars_max, "to")
        if to == write.path:
            raise invalid("to", f"{to} is both source and destination.")
    for path in written_paths(write):
        scheme = rules.scheme(scheme_of(path) or "")
        check_writer(scheme, writer, path)
        if scheme.name == PLANS and not of_plans:
            # A change as an entry would have no version, no delta and no event (C45).
            message = (
                f"{path} is part of a plan, and not written as an entry: use set_plan to replace a plan, update_plan "
                "to add to it; `turnwright plan rm` takes one away."
            )
            raise fault(Reason.PLAN_ENTRY, message, path=path, outcome=PLAN_TOOL)
    if isinstance(change, SetEntry):
        _check_set(limits, write.path, scheme, change, writer)
    elif isinstance(change, AppendEntry):
        check_bytes("text", change.text, limits.append_bytes_max)
    return write if writer is write.writer else replace(write, writer=writer)


def _check_set(limits: WriteLimits, path: str, scheme: Scheme, change: SetEntry, writer: Tier) -> None:
    if change.body is not None:
        check_bytes("body", change.body, limits.body_bytes_max)
    for field in ("attributes_json", "merge_attributes_json"):
        if (text := getattr(change, field)) is not None:
            check_attributes(text, limits.attributes_bytes_max, field)
    if change.outcome:
        check_words("outcome", change.outcome, OUTCOME_CHARS_MAX)
    if scheme.name == "event":
        check_event(path, change)
    if change.record is not None:
        check_record(change.record, limits.attributes_bytes_max)
        if writer is not Tier.SYSTEM:
            # Records of commands say what was accepted, and by whom.
            _refuse_writer(f"{path}: the record of a command", "system", writer, path)


def written_paths(write: EntryWrite) -> tuple[str, ...]:
    """The paths that a write changes: a copy only reads its source."""
    to = destination_of(write.change)
    if to is None:
        return (write.path,)
    return (to,) if isinstance(write.change, CopyEntry) else (write.path, to)


def check_unfenced(writes: Sequence[EntryWrite], turn_open: int) -> None:
    """Refuse writes of others than the owner to the records of the open turn; 0: none is open."""
    prefix = records_prefix(turn_open)
    for path in (path for write in writes if turn_open for path in written_paths(write)):
        if path.startswith(prefix):
            message = f"{path} is a record of the open turn: only its owner writes it."
            raise transition_forbidden("entry", path, path, message)


# ---- Fields


def check_path(path: str, chars_max: int = PATH_CHARS_MAX, field: str = "path") -> None:
    """Refuse a path that is empty, too long or contains control characters (RU049)."""
    if not path:
        raise invalid(field, f"{field} is empty: name a path.")
    check_chars(field, path, chars_max)
    if _CONTROL.search(path):
        raise invalid(field, f"A path must not contain control characters; {path!r} does.")


def check_revision(path: str, expected: int | None, actual: int) -> None:
    """Optimistic lock: refuse a write for another revision of its entry. Raises REVISION_CONFLICT."""
    if expected is not None and expected != actual:
        raise fault(
            Reason.REVISION_CONFLICT,
            f"{path} is at revision {actual}, not {expected}: read it again, then repeat.",
            path=path,
            expected=expected,
            actual=actual,
        )


def check_record(record: bytes, bytes_max: int = RECORD_BYTES_MAX) -> None:
    """Refuse the record of a command that is too long."""
    if len(record) > bytes_max:
        raise over_limit("record", bytes_max, len(record), "bytes")


def check_attributes(text: str, bytes_max: int = ATTRIBUTES_BYTES_MAX, field: str = "attributes_json") -> None:
    """Refuse attributes that are not a JSON object (RU051)."""
    check_bytes(field, text, bytes_max)
    if not (is_valid_by_fast_parser(text) or is_valid_object(text)):
        raise invalid(field, f"{field} must be one JSON object, nested at most {ATTRIBUTES_DEPTH_MAX} deep.")


def is_valid_by_fast_parser(text: str) -> bool:
    """A fast check that accepts most valid attributes; False: check with `is_valid_object`."""
    if text.count("{") + text.count("[") > ATTRIBUTES_DEPTH_MAX:
        return False
    try:
        _OBJECT.decode(text)
    except ValueError:
        return False
    return True


def is_valid_object(text: str) -> bool:
    """Whether attributes are one JSON object, and not nested too deep."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and not _depth_over(value, ATTRIBUTES_DEPTH_MAX)


_OBJECT: Final = msgspec.json.Decoder(dict)


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _depth_over(value: dict[str, Any], limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


# ---- Events


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


# ---- Writers


def writer_of(caller: Caller, wanted: Tier) -> Tier:
    """The tier a write is made with. Raises TIER_FORBIDDEN above the call's effective tier."""
    if wanted is Tier.UNSPECIFIED:
        return caller.tier
    if wanted > caller.tier:
        raise fault(
            Reason.TIER_FORBIDDEN,
            f"This call has the tier {caller.tier.name.lower()} and cannot write as {wanted.name.lower()}.",
            tier=wanted.name.lower(),
            ceiling=caller.tier.name.lower(),
        )
    return wanted


def check_writer(scheme: Scheme, writer: Tier, path: str) -> None:
    """Refuse a writer that the scheme does not list; no tier is implied by another."""
    if writer in scheme.writable_by:
        return
    allowed = ", ".join(tier.name.lower() for tier in sorted(scheme.writable_by))
    _refuse_writer(path, allowed, writer, path, scheme=scheme.name)


def _refuse_writer(what: str, allowed: str, writer: Tier, path: str, **of: str) -> NoReturn:
    name = writer.name.lower()
    message = f"{what} can be written only by {allowed}, not by {name}."
    raise fault(Reason.WRITER_FORBIDDEN, message, path=path, writer=name, outcome=PERMISSION, **of)
