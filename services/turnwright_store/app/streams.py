"""Streams of producers other than the run's owner: their records, their channels, and their ends.

A stream is a record with channels. Their attributes name the producer; without one it is the run's owner, who writes
the record: others can end its channels, and the owner stops when it sees that.

A stream is an orphan when its producer is gone, an executor that died or a client that left. A client that produces
must send heartbeats (empty appends) within the grace period. The owner of a run need not: its lease is its heartbeat.
All channels of a stream end together; what was received is kept. Source: rows RU170-RU178, RU234-RU237; architecture 3
(streaming bodies), 11 (streaming channels without a producer: 499 after the grace time).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct
from turnwright.streams.v1.stream_service_pb2 import AppendStreamRequest, OpenStreamRequest
from turnwright_values.store import AppendEntry, Durability, EntryWrite, SetEntry
from turnwright_values.types import Entry, State, StreamChannel, StreamEnd, Tier, Visibility

from turnwright_core.checks import check_chars, check_count, invalid, transition_forbidden
from turnwright_core.errors import Reason, fault
from turnwright_core.events import RunEvent, Subkind, slug_of
from turnwright_core.limits import SUMMARY_CHARS_MAX, TARGET_CHARS_MAX
from turnwright_core.streams import (
    CANCELLED,
    CHANNEL_MAX,
    CHANNELS,
    CHANNELS_MAX,
    PRODUCER,
    PRODUCER_LOST,
    REASON_CHARS_MAX,
    STOPPED,
    channel_base,
    channel_path,
    is_record,
    record_of_channel,
)
from turnwright_core.text import slugify
from turnwright_core.value_methods import to_attributes_json
from turnwright_kit.identity.caller import Caller, Kind
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.maintenance import Chore, poll_interval_s, process_row
from turnwright_store.app.run_events import free_path, write_event
from turnwright_store.domain.locks import write_locks
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.write_rules import check_writes
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql.contents import find_entry, load_entries
from turnwright_store.sql.runs import RunHead, RunRow, find_run, get_run_head
from turnwright_store.sql.streams import StreamPosition, list_silent
from turnwright_store.sql.views import EntryRow, Wanted, find_entry_row, list_entry_rows

TOOL: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")

CHANNEL_PATHS_MAX: Final = 1000
"""Paths below a record to scan for its channels."""


class StreamEnding(Struct, frozen=True):
    """An EndStreamRequest with its caller, `producer`; or the end of a silent stream, which nobody has asked for."""

    path: str
    end: StreamEnd
    producer: str
    exit_code: int | None = None
    duration_s: float | None = None
    reason: str = ""
    outcome: str = ""
    """Outcome of the entries; empty: derived from the end."""


# Begin -----------------------------------------------------------------------------------------------------------


def open_stream(
    tx: Transaction, rules: StoreRules, caller: Caller, request: OpenStreamRequest
) -> tuple[str, list[StreamChannel], RunHead]:
    """Write the record of a stream and its channels; returns the record's path, the channels, the run."""
    numbers = _check_opening(rules, request)
    run = get_run_head(tx.connection, request.project, request.run)
    path = free_path(tx, run, f"log://turn_{run.turn}/{request.tool}/{slugify(request.target) or 'stream'}")
    writes = [_record_write(path, request, caller.name, numbers)]
    writes += [_channel_write(path, number, request.target, caller.name) for number in numbers]
    run = apply_writes(tx, rules, run, check_writes(rules, caller, writes), caller.name).run
    return path, [StreamChannel(number, channel_path(path, number), 0, State.STREAMING) for number in numbers], run


def _check_opening(rules: StoreRules, opening: OpenStreamRequest) -> list[int]:
    if not TOOL.fullmatch(opening.tool):
        raise invalid("tool", f"tool must match {TOOL.pattern}; it is {opening.tool!r}.")
    scheme = rules.schemes.get(opening.tool)
    if scheme is None or scheme.default_scope != "run" or scheme.category != "data":
        message = f"{opening.tool} is not a scheme for data of a run: use sh or env, or register one first."
        raise invalid("tool", message)
    if not opening.target.strip():
        raise invalid("target", "target is required: the command, or the name of what is streamed.")
    check_chars("target", opening.target, TARGET_CHARS_MAX)
    check_count("channels", len(opening.channels), CHANNELS_MAX)
    return [_check_number(number) for number in dict.fromkeys(opening.channels or CHANNELS)]


def _check_number(number: int) -> int:
    if not 1 <= number <= CHANNEL_MAX:
        raise invalid("channel", f"The number of a channel must be from 1 to {CHANNEL_MAX}; it is {number}.")
    return number


def _record_write(path: str, opening: OpenStreamRequest, producer: str, numbers: Sequence[int]) -> EntryWrite:
    output = ", ".join(channel_path(path, number) for number in numbers)
    attributes = {"tool": opening.tool, "target": opening.target, PRODUCER: producer}
    body = f"started '{opening.target}', Output: {output}"
    change = SetEntry(body, to_attributes_json(attributes), state=State.RESOLVED)
    return EntryWrite(path, change, Tier.PLUGIN)


def _channel_write(path: str, number: int, target: str, producer: str, text: str = "") -> EntryWrite:
    summary = " ".join(target.split())[:SUMMARY_CHARS_MAX]
    attributes = to_attributes_json({"command": target, "channel": number, "summary": summary, PRODUCER: producer})
    change = SetEntry(text, attributes, visibility=Visibility.SUMMARIZED, state=State.STREAMING)
    return EntryWrite(channel_path(path, number), change, Tier.PLUGIN)


# Grow ------------------------------------------------------------------------------------------------------------


def append_stream(
    tx: Transaction, rules: StoreRules, caller: Caller, piece: AppendStreamRequest
) -> tuple[StreamChannel, RunHead]:
    """Append to a channel; idempotent if the offset is given."""
    _check_number(piece.channel)
    run = get_run_head(tx.connection, piece.project, piece.run)
    record = _record(tx, run, piece.path)
    _check_is_producer(record, caller.name)
    path = channel_path(piece.path, piece.channel)
    if find_entry_row(tx.connection, run.id, path):
        offset = piece.offset if piece.HasField("offset") else None
        write = EntryWrite(path, AppendEntry(piece.text, offset), Tier.PLUGIN)
    else:
        write = _new_channel(tx, caller, run, record, piece)
    run = apply_writes(tx, rules, run, check_writes(rules, caller, [write]), caller.name).run
    shown = find_entry_row(tx.connection, run.id, path)
    assert shown, "it was written"
    return _channel(shown), run


def _new_channel(
    tx: Transaction, caller: Caller, run: RunHead, record: Entry, piece: AppendStreamRequest
) -> EntryWrite:
    channels = list_channels(tx, run, piece.path)
    check_count("channels", len(channels) + 1, CHANNELS_MAX)
    if not any(channel.state is State.STREAMING for channel in channels):
        message = f"The stream {piece.path} has ended: open another one."
        raise transition_forbidden(piece.path, record.state.name.lower(), "streaming", message)
    if piece.offset:
        message = f"StreamChannel {piece.channel} of {piece.path} has nothing yet: append from 0."
        raise fault(Reason.REVISION_CONFLICT, message, path=piece.path, expected=piece.offset, actual=0)
    target = str(record.attributes.get("target", ""))
    return _channel_write(piece.path, piece.channel, target, caller.name, piece.text)


def _record(tx: Transaction, run: RunHead, path: str) -> Entry:
    if not is_record(path):
        raise invalid("path", f"{path!r} is not the record of a stream: use log://turn_N/{{tool}}/{{slug}}.")
    record = find_entry(tx.connection, run, path, bodies=False)
    if record is None:
        raise fault(Reason.ENTRY_NOT_FOUND, f"There is no record {path} in {run.alias}.", path=path)
    return record


def _check_is_producer(record: Entry, producer: str) -> None:
    of = record.attributes.get(PRODUCER)
    if of == producer:
        return
    whose = of or "the owner of the run"
    message = f"{record.path} is produced by {whose}, not by {producer}; it can only be cancelled."
    raise transition_forbidden(record.path, "foreign", "streaming", message)


def list_channels(tx: Transaction, run: RunHead, path: str) -> list[StreamChannel]:
    """The channels of a record, in path order."""
    return list(map(_channel, _channel_views(tx, run, path)))


def open_channels(tx: Transaction, run: RunHead, path: str) -> list[EntryRow]:
    """The views of a record's channels that have not ended."""
    return [one for one in _channel_views(tx, run, path) if one.state == State.STREAMING]


def _channel_views(tx: Transaction, run: RunHead, path: str) -> list[EntryRow]:
    shown = list_entry_rows(tx.connection, run.id, f"{channel_base(path)}_", "", CHANNEL_PATHS_MAX)
    return [one for one in shown if _is_channel_of(one, path)]


def _is_channel_of(shown: EntryRow, path: str) -> bool:
    found = record_of_channel(shown.path)
    return found is not None and found[0] == path


def _channel(shown: EntryRow) -> StreamChannel:
    found = record_of_channel(shown.path)
    return StreamChannel(found[1] if found else 0, shown.path, shown.body_size_bytes, State(shown.state))


# End -------------------------------------------------------------------------------------------------------------


def end_stream(
    tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, ending: StreamEnding
) -> tuple[list[StreamChannel], RunHead]:
    """End the open channels of a stream, and write its record with the figures unless the run's owner does."""
    _check_ending(ending)
    run = get_run_head(tx.connection, address.project, address.run)
    record = _record(tx, run, ending.path)
    if ending.end is not StreamEnd.CANCELLED:
        _check_is_producer(record, ending.producer)
    return end_channels(tx, rules, caller, run, record, ending)


def _check_ending(ending: StreamEnding) -> None:
    check_chars("reason", ending.reason, REASON_CHARS_MAX)
    if ending.exit_code is not None and ending.end is not StreamEnd.COMPLETED:
        raise invalid("exit_code", "exit_code can only be set when completing a stream.")
    if ending.duration_s is not None and ending.duration_s < 0:
        raise invalid("duration", f"duration must not be negative; it is {ending.duration_s} seconds.")


def end_channels(
    tx: Transaction, rules: StoreRules, caller: Caller, run: RunHead, record: Entry, ending: StreamEnding
) -> tuple[list[StreamChannel], RunHead]:
    """End what is open of a stream; does nothing if nothing is."""
    channels = list_channels(tx, run, ending.path)
    still_open = [channel for channel in channels if channel.state is State.STREAMING]
    if not still_open:
        return [], run
    state, outcome = _result(ending)
    writes = [_channel_end(channel, state, outcome) for channel in still_open]
    if PRODUCER in record.attributes:
        writes.append(_final_record_write(record, channels, ending, *_record_result(state, outcome)))
    run = apply_writes(tx, rules, run, check_writes(rules, caller, writes), caller.name).run
    if PRODUCER in record.attributes:
        # The exit code of a process must not be lost because the run is full.
        run = write_event(tx, rules, run, caller.name, _end_event(record, channels, ending, outcome))
    return [StreamChannel(one.number, one.path, one.body_size_bytes, state) for one in still_open], run


def _result(ending: StreamEnding) -> tuple[State, str]:
    if ending.end is StreamEnd.COMPLETED and ending.exit_code:
        return State.FAILED, f"exit_{ending.exit_code}:500"
    if ending.end is StreamEnd.COMPLETED:
        return State.RESOLVED, ""
    return State.CANCELLED, ending.outcome or (CANCELLED if ending.end is StreamEnd.CANCELLED else "aborted:499")


def _record_result(state: State, outcome: str) -> tuple[State, str]:
    """State and outcome of the record: it had begun, and only what has not is told as cancelled (C63)."""
    if state is not State.CANCELLED:
        return state, outcome
    return State.FAILED, outcome if outcome == PRODUCER_LOST else STOPPED


def _channel_end(channel: StreamChannel, state: State, outcome: str) -> EntryWrite:
    """The end of a channel; one with output of a failed command becomes visible, so that the model reads the reason."""
    is_shown = state is State.FAILED and channel.body_size_bytes
    visibility = Visibility.VISIBLE if is_shown else Visibility.UNSPECIFIED
    return EntryWrite(channel.path, SetEntry(visibility=visibility, state=state, outcome=outcome), Tier.PLUGIN)


def _final_record_write(
    record: Entry, channels: Sequence[StreamChannel], ending: StreamEnding, state: State, outcome: str
) -> EntryWrite:
    """The record with exit code, duration and sizes, or the reason (RU176)."""
    figures: dict[str, Any] = {
        "exit_code": ending.exit_code,
        "duration_s": None if ending.duration_s is None else round(ending.duration_s, 3),
        "reason": ending.reason or None,
        "channels": [{"path": channel.path, "bytes": channel.body_size_bytes} for channel in channels],
    }
    given = {name: value for name, value in figures.items() if value is not None}
    output = ", ".join(f"{channel.path} ({_size(channel)})" for channel in channels)
    body = f"{_verb(ending, outcome)} '{record.attributes.get('target', '')}'{_how(ending)}, Output: {output}"
    change = SetEntry(body, state=state, outcome=outcome, merge_attributes_json=to_attributes_json(given))
    return EntryWrite(record.path, change, Tier.PLUGIN)


def _end_event(record: Entry, channels: Sequence[StreamChannel], ending: StreamEnding, outcome: str) -> RunEvent:
    """The event about the end of a process that no turn waits for: the model reads it in its next turn (RE07)."""
    tool, target = str(record.attributes.get("tool", "")), str(record.attributes.get("target", ""))
    status = "exited" if ending.end is StreamEnd.COMPLETED else outcome.partition(":")[0]
    payload = {
        "path": record.path,
        "tool": tool,
        "target": target,
        "status": status,
        "exit_code": ending.exit_code,
        "duration_s": None if ending.duration_s is None else round(ending.duration_s, 3),
        "reason": ending.reason,
        "channels": [channel.path for channel in channels],
    }
    output = ", ".join(f"{channel.path} ({_size(channel)})" for channel in channels)
    sentence = f"The background process '{target}' has ended: {status}{_how(ending)}. Output: {output}"
    return RunEvent(Subkind.PROCESS_COMPLETED, tool, payload, sentence, slug_of(record.path))


def _verb(ending: StreamEnding, outcome: str) -> str:
    return "ran" if ending.end is StreamEnd.COMPLETED else outcome.partition(":")[0].replace("_", " ")


def _how(ending: StreamEnding) -> str:
    parts = [] if ending.exit_code is None else [f"exit={ending.exit_code}"]
    return "".join(f", {part}" for part in [*parts, *([ending.reason] if ending.reason else [])])


def _size(channel: StreamChannel) -> str:
    if not channel.body_size_bytes:
        return "empty"
    return "1 byte" if channel.body_size_bytes == 1 else f"{channel.body_size_bytes} bytes"


# Orphans ---------------------------------------------------------------------------------------------------------


PAGE: Final = 100
"""Silent channels to find at a time."""

_STORE: Final = Caller("store", Kind.SERVICE, Tier.SYSTEM)
_LOST: Final = "its producer is gone"

Silent = tuple[str, str, str]
"""Project, run and path of a channel."""


def orphaned_streams(database: Database, rules_now: Callable[[], StoreRules], grace_ms: int) -> Chore:
    """The chore for streams that have been silent for this many milliseconds."""

    async def step() -> bool:
        place: StreamPosition | None = (0, 0)
        while place is not None:
            silent, place = await database.read(partial(list_silent, grace_ms=grace_ms, after=place, page=PAGE))
            # Each on its own: one that cannot be ended does not block the others.
            for one in silent:
                await _end_one(database, rules_now(), one, grace_ms)
        return False

    return Chore("orphaned_streams", poll_interval_s(grace_ms), step)


async def _end_one(database: Database, rules: StoreRules, silent: Silent, grace_ms: int) -> None:
    """End a silent stream; without its figures if its record has no room for them."""
    project, run, path = silent
    locks = write_locks(rules, project, run, [path])
    for ends_channel in (True, False):
        work = partial(end_orphaned, rules=rules, silent=silent, grace_ms=grace_ms, ends_channel=ends_channel)
        writing = database.write(work, Durability.NORMAL, locks)
        if await process_row(writing, "silence", project=project, run=run, path=path, record=ends_channel) is None:
            return


def end_orphaned(tx: Transaction, rules: StoreRules, silent: Silent, grace_ms: int, *, ends_channel: bool) -> None:
    """End a silent channel without a producer, together with its stream if it has a record."""
    project, alias, path = silent
    run = find_run(tx.connection, project, alias)
    shown = find_entry_row(tx.connection, run.id, path) if run else None
    if run is None or shown is None or shown.state != State.STREAMING:
        return
    if _is_silent(tx, run, shown, tx.now_ms - grace_ms) and not _is_held(tx, rules, run, shown):
        _end(tx, rules, run, path, ends_channel=ends_channel)


def _is_silent(tx: Transaction, run: RunRow, shown: EntryRow, since_ms: int) -> bool:
    """Whether all channels of the stream are silent."""
    channel = record_of_channel(shown.path)
    others = open_channels(tx, run, channel[0]) if channel else []
    return all(one.view_ms <= since_ms for one in (shown, *others))


def _is_held(tx: Transaction, rules: StoreRules, run: RunRow, shown: EntryRow) -> bool:
    """Whether the owner of the run produces it and is alive."""
    (channel,) = load_entries(tx.connection, run, [shown], Wanted(bodies=False))
    if PRODUCER in channel.attributes:
        return False
    return bool(run.lease_owner) and run.lease_expires_ms + rules.lease_grace_ms > tx.now_ms


def _end(tx: Transaction, rules: StoreRules, run: RunRow, path: str, *, ends_channel: bool) -> None:
    """End the whole stream if the channel has a record, else the channel alone."""
    channel = record_of_channel(path) if ends_channel else None
    record = find_entry(tx.connection, run, channel[0], bodies=False) if channel else None
    if record is not None:
        ending = StreamEnding(record.path, StreamEnd.CANCELLED, _STORE.name, reason=_LOST, outcome=PRODUCER_LOST)
        end_channels(tx, rules, _STORE, run, record, ending)
        return
    # Written with the store's own tier, whatever the scheme allows others.
    write = EntryWrite(path, SetEntry(state=State.CANCELLED, outcome=PRODUCER_LOST), Tier.SYSTEM)
    apply_writes(tx, rules, run, [write], _STORE.name)
