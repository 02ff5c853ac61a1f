"""What may come in with a document: each element is read and checked by itself, and refused with a sentence.

A document is a text from anywhere. It cannot say which rows it becomes: ids, scopes and grants are ours, paths are
checked as those of a write, and what had not ended has.
Source: rows RT01, RT03, RT04; the message RunDocument.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from math import isfinite
from typing import Any, Final, TypeVar

import msgspec
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from msgspec import Struct
from msgspec.structs import replace
from turnwright.types.v1 import entry_pb2, loop_pb2, run_pb2, turn_pb2
from turnwright_values.store import SetEntry
from turnwright_values.types import (
    Entry,
    Loop,
    Mode,
    Run,
    State,
    Tier,
    Turn,
    TurnRequest,
    TurnResult,
    Visibility,
)

from turnwright_core.chat.message import image_type
from turnwright_core.checks import check_bytes, check_words
from turnwright_core.errors import TurnwrightError, message_of
from turnwright_core.json_items import JsonItem
from turnwright_core.limits import (
    CALIBRATION_MAX,
    LOOP_SUMMARY_BYTES_MAX,
    NAME_CHARS_MAX,
    PATH_CHARS_MAX,
    PROMPT_BYTES_MAX,
    REASON_BYTES_MAX,
)
from turnwright_core.runs import ABORTED, LOOP_ENDED, PROPOSED, RUN_TRANSITIONS, RUNNING
from turnwright_core.schemes import OF_SESSIONS
from turnwright_core.text import scheme_of
from turnwright_core.titles import TITLE_CHARS_MAX, one_line
from turnwright_core.wire.command_records import may_have_happened
from turnwright_core.wire.entries import entry_from_pb
from turnwright_core.wire.runs import loop_from_pb, run_from_pb, turn_from_pb
from turnwright_core.wire.times import time_from_pb
from turnwright_store.domain.checks import RUN_ALIAS, check_loop_settings, check_run_settings
from turnwright_store.domain.limits import REVISIONS_OF_ENTRY, WriteLimits
from turnwright_store.domain.write_rules import (
    OUTCOME_CHARS_MAX,
    check_attributes,
    check_event,
    check_path,
    check_record,
)

IMPORTED: Final = "imported"
"""Reason of what had not ended in a document."""

TURN_BYTES_MAX: Final = 1024 * 1024
"""Longest request and longest result of a turn, in bytes of JSON."""

NUMBER_MAX: Final = 10**8
"""Largest number of a turn or a loop: a run goes on from there, and paths have room for nine digits."""

M = TypeVar("M", bound=Message)
V = TypeVar("V")


class ElementError(ValueError):
    """An element that is left out; the text says why."""


def parse(item: JsonItem, message: M) -> M:
    """The message that an element is. Raises ElementError."""
    return read_value(json_value(item), message)


def json_value(item: JsonItem) -> Any:
    if item.problem:
        raise ElementError(item.problem)
    try:
        return msgspec.json.decode(item.text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ElementError(f"it is not valid JSON: {error}") from None


def read_value(value: Any, message: M) -> M:
    try:
        return ParseDict(value, message, ignore_unknown_fields=True)
    except (ParseError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ElementError(f"it is not a valid {message.DESCRIPTOR.name}: {str(error)[:300]}") from None


class SeenEntry(Struct, frozen=True):
    """One interval of a path, checked."""

    entry: Entry
    end: int
    begin_ms: int
    content: int
    """Revision of the element that has its content; its own: here."""
    appended: int


def entry_of(item: JsonItem, limits: WriteLimits) -> SeenEntry:
    """Raises ElementError."""
    message = parse(item, entry_pb2.EntryInterval())
    entry = replace(_value(entry_from_pb, message.entry), scheme=scheme_of(message.entry.path) or "", scope="")
    end, revision = message.end_revision, entry.revision
    content = message.content_revision or revision
    try:
        check_entry(entry, limits, has_content=content == revision)
    except TurnwrightError as error:
        raise ElementError(error.message) from None
    if not 0 < revision < REVISIONS_OF_ENTRY or (end and not revision < end < REVISIONS_OF_ENTRY):
        raise ElementError(f"its revisions are {revision} and {end}: the second must be higher, or 0")
    size = len(entry.body.encode()) if content == revision else entry.body_size_bytes
    if not 0 <= message.appended_bytes <= size or size != entry.body_size_bytes:
        raise ElementError(f"its body has {size} bytes, and its sizes say something else")
    if content == revision and entry.hash and entry.hash != hashlib.sha256(entry.body.encode()).hexdigest():
        raise ElementError("its body is not the one that its hash is of")
    shown = entry if end else _at_rest(entry)
    return SeenEntry(shown, end, time_from_pb(message.create_time), content, message.appended_bytes)


def check_entry(entry: Entry, limits: WriteLimits, *, has_content: bool) -> None:
    """Refuse an entry that no run can have. Raises ElementError, InvalidError."""
    check_path(entry.path, limits.path_chars_max)
    check_words("outcome", entry.outcome, OUTCOME_CHARS_MAX)
    if entry.scheme in OF_SESSIONS:
        raise ElementError("it waits to be carried out or sent, and stays where it is")
    if entry.visibility is Visibility.UNSPECIFIED or entry.state is State.UNSPECIFIED:
        raise ElementError("its visibility or its state is unknown to this version")
    if entry.outcome and entry.state not in (State.FAILED, State.CANCELLED):
        raise ElementError("it has an outcome and has neither failed nor been cancelled")
    if not (0 < entry.position <= limits.run_entries_max and 0 < entry.write_count < REVISIONS_OF_ENTRY):
        raise ElementError(f"its position is {entry.position}, its write_count {entry.write_count}")
    if max(entry.turn, entry.loop) > NUMBER_MAX:
        raise ElementError("its turn or its loop is out of range")
    if has_content:
        _check_content(entry, limits)


def _check_content(entry: Entry, limits: WriteLimits) -> None:
    if entry.writer is Tier.UNSPECIFIED:
        raise ElementError("its writer is unknown to this version")
    check_bytes("body", entry.body, limits.body_bytes_max)
    check_attributes(entry.attributes_json, limits.attributes_bytes_max)
    check_record(entry.record, limits.attributes_bytes_max)
    if entry.record and entry.writer is not Tier.SYSTEM:
        raise ElementError("it has the record of a command, which only the runtime writes")
    if entry.scheme == "image" and not _is_image(entry):
        raise ElementError("it is not an image that models accept, or its `mime` says something else")
    if entry.scheme == "event":
        check_event(entry.path, SetEntry(entry.body, entry.attributes_json))


def _is_image(entry: Entry) -> bool:
    try:
        found = image_type(base64.b64decode(entry.body, validate=True))
    except (binascii.Error, ValueError):
        return False
    return bool(found) and entry.attributes.get("mime") == found


def _at_rest(entry: Entry) -> Entry:
    """An entry that is seen still, and that nobody works on any more."""
    if entry.state.is_settled or entry.state is State.RESOLVED:
        return entry
    if may_have_happened(entry.record):
        return replace(entry, state=State.FAILED, outcome="indeterminate:500")
    return replace(entry, state=State.CANCELLED, outcome="aborted:499")


def loop_of(item: JsonItem, now_ms: int) -> Loop:
    """A loop that has ended, and grants nothing to those after it. Raises ElementError."""
    loop = _value(loop_from_pb, parse(item, loop_pb2.Loop()))
    if not 0 < loop.sequence <= NUMBER_MAX or loop.first_turn > NUMBER_MAX:
        raise ElementError("its sequence or its first turn is out of range")
    if loop.settings.mode is Mode.UNSPECIFIED:
        raise ElementError("its mode is unknown to this version")
    try:
        check_bytes("prompt", loop.prompt, PROMPT_BYTES_MAX)
        check_bytes("reason", loop.reason, REASON_BYTES_MAX)
        check_bytes("summary", loop.summary, LOOP_SUMMARY_BYTES_MAX)
        check_words("command_id", loop.command_id, NAME_CHARS_MAX)
        check_words("settings.model", loop.settings.model, PATH_CHARS_MAX)
        check_loop_settings(loop.settings)
    except TurnwrightError as error:
        raise ElementError(error.message) from None
    if not isfinite(loop.usage.cost_usd or 0):
        raise ElementError("its cost is not a number")
    loop = replace(loop, settings=replace(loop.settings, yolo=False, client_tools=()))
    if loop.status in LOOP_ENDED:
        return replace(loop, end_ms=loop.end_ms or loop.create_ms or now_ms)
    return replace(loop, status=ABORTED, reason=IMPORTED, end_ms=now_ms)


_REQUEST: Final = msgspec.json.Decoder(TurnRequest)
_RESULT: Final = msgspec.json.Decoder(TurnResult)


def turn_of(item: JsonItem, now_ms: int) -> Turn:
    """A turn that has ended. Raises ElementError."""
    turn = _value(turn_from_pb, parse(item, turn_pb2.Turn()))
    if not 0 < turn.number <= NUMBER_MAX or turn.loop > NUMBER_MAX or not 0 <= turn.revision < REVISIONS_OF_ENTRY:
        raise ElementError("its number, its loop or its revision is out of range")
    result = turn.result or TurnResult(finish="aborted", status=ABORTED, reason=IMPORTED)
    try:
        stored = [msgspec.json.encode(part) for part in (turn.request, result)]
        _REQUEST.decode(stored[0])
        _RESULT.decode(stored[1])
    except (msgspec.DecodeError, ValueError) as error:
        # Such as an infinite number.
        raise ElementError(f"it cannot be stored: {error}") from None
    if max(map(len, stored)) > TURN_BYTES_MAX:
        raise ElementError(f"its request or its result has more than {TURN_BYTES_MAX} bytes")
    if not 0 <= result.calibration <= CALIBRATION_MAX:
        raise ElementError(f"its calibration is not from 0 to {CALIBRATION_MAX:g}")
    return replace(turn, result=result, end_ms=turn.end_ms or turn.begin_ms or now_ms)


def run_of(item: JsonItem, now_ms: int) -> Run:
    """A run at rest, without grants, that is not a fork. Raises ElementError."""
    run = _value(run_from_pb, parse(item, run_pb2.Run()))
    if not RUN_ALIAS.fullmatch(run.run):
        raise ElementError(f"its alias must match {RUN_ALIAS.pattern}; it is {run.run[:NAME_CHARS_MAX]!r}")
    if run.turn > NUMBER_MAX:
        raise ElementError("its turn is out of range")
    settings = replace(run.settings, yolo=False)
    try:
        check_words("settings.model", settings.model, PATH_CHARS_MAX)
        check_run_settings(settings)
        check_bytes("summary", run.summary, LOOP_SUMMARY_BYTES_MAX)
    except TurnwrightError as error:
        raise ElementError(error.message) from None
    status = run.status if run.status in RUN_TRANSITIONS and run.status not in (RUNNING, PROPOSED) else ABORTED
    create_ms = min(run.create_ms or now_ms, now_ms)
    run = replace(run, title=one_line(run.title)[:TITLE_CHARS_MAX])
    return replace(run, settings=settings, status=status, create_ms=create_ms, forked_from=None, loop=None)


def _value(from_pb: Callable[[Any], V], message: Message) -> V:
    try:
        return from_pb(message)
    except (TurnwrightError, ValueError, LookupError, TypeError) as error:
        raise ElementError(f"it is not a valid {message.DESCRIPTOR.name}: {message_of(error)}") from None
