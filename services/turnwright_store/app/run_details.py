"""A run with what people are shown of it: loops, turns, spend, what waits for a decision, its history and messages.

Core decides which entries are messages (C40). Source: rows RU238, RU247, RU248.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright.types.v1 import run_message_pb2
from turnwright_values.replies import ToolCall
from turnwright_values.types import Entry, Loop, MessageKind, Run, RunMessage, Spend, Turn, ViewFilter

from turnwright_core.batching import split_by_weight
from turnwright_core.chat.message import Text
from turnwright_core.chat.timeline import MESSAGE_SCHEMES, is_synthetic, messages_in, parts_of, run_message, turn_of
from turnwright_core.checks import check_count
from turnwright_core.limits import EVENT_BODY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_SIZE_MAX
from turnwright_core.text import cut_bytes
from turnwright_core.wire.command_records import recorded_call
from turnwright_core.wire.messages import run_message_to_pb
from turnwright_store.app import registry
from turnwright_store.app.control import get_spend
from turnwright_store.app.list_entries import EntryQuery, list_entries
from turnwright_store.app.read_view import weight_of
from turnwright_store.app.registry import turns_by_number
from turnwright_store.domain.message_sizes import loop_bytes, turn_bytes
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.inbox import entry_rows_of, page_of_waiting
from turnwright_store.sql.loops import list_loops
from turnwright_store.sql.runs import RunHead, get_run, get_run_head
from turnwright_store.sql.turns import list_turns
from turnwright_store.sql.views import EntryRow, Wanted, find_entry_rows, snapshot

LOOPS_MAX: Final = 100
UNKNOWNS_MAX: Final = 1000
PART_BYTES: Final = 512 * 1024
"""Approximate maximum size of each part of an answer, in bytes."""

_AUDIT: Final = ("audit", "hidden")
_TIMELINE: Final = Wanted(ViewFilter.TIMELINE, body_bytes_max=EVENT_BODY_BYTES_MAX)

T = TypeVar("T")


class RunDetails(Struct, frozen=True):
    """A run; lists begin with the latest, those of entries are in the order of the timeline."""

    run: Run
    private_to: str | None
    loops: list[Loop]
    turns: list[Turn]
    latest: Turn | None
    spent: Spend
    loop_spent: Spend
    proposals: list[str]
    """Paths of what waits for a decision."""
    history: list[Entry]
    unknowns: list[Entry]
    """The open questions of the model."""


def get_run_details(
    connection: Connection, rules: StoreRules, address: RunRef, turns_max: int, history_max: int
) -> RunDetails:
    """A run with its latest turns and timeline entries, as many as are asked for and fit. Raises LIMIT_EXCEEDED."""
    check_count("turns_max", turns_max, PAGE_SIZE_MAX)
    check_count("history_max", history_max, PAGE_SIZE_MAX)
    run = get_run(connection, address.project, address.run)
    turns = _fitting(list_turns(connection, run.id, run.turn + 1, max(turns_max, 1)), turn_bytes)
    spent, loop_spent = get_spend(connection, run, 0)
    waiting = page_of_waiting(connection, None, [run.id], (0, 0), PAGE_SIZE_MAX)
    proposed = entry_rows_of(connection, [one.view for one in waiting])
    history, unknowns = _timeline(connection, rules, run, history_max) if history_max else ([], [])
    return RunDetails(
        registry.with_origin(connection, run),
        run.private_to,
        _fitting(list_loops(connection, run.id, run.loops + 1, LOOPS_MAX), loop_bytes),
        turns[:turns_max],
        turns[0] if turns else None,
        spent,
        loop_spent,
        sorted(one.path for one in proposed.values()),
        history,
        unknowns,
    )


def _timeline(
    connection: Connection, rules: StoreRules, run: RunHead, history_max: int
) -> tuple[list[Entry], list[Entry]]:
    """The latest entries of a run except stored packets, and its open questions."""
    shown = [
        (row, category)
        for row in snapshot(connection, run, _TIMELINE, rules.hidden_schemes)
        if (category := rules.scheme(row.scheme).category) not in _AUDIT
    ]
    latest = _fitting((row for row, _ in shown[: -history_max - 1 : -1]), _weight)
    unknown = _fitting([row for row, category in shown if category == "unknown"][:UNKNOWNS_MAX], _weight)
    return load_entries(connection, run, latest[::-1], _TIMELINE), load_entries(connection, run, unknown, _TIMELINE)


def _weight(row: EntryRow) -> int:
    return weight_of(row, _TIMELINE)


def _fitting(items: Iterable[T], weight: Callable[[T], int]) -> list[T]:
    """As many of the first items as fit, but at least one."""
    found: list[T] = []
    room = PART_BYTES
    for item in items:
        room -= weight(item)
        if found and room < 0:
            break
        found.append(item)
    return found


TEXT_BYTES_MAX: Final = 1024 * 1024
"""Longest text of a message, in bytes; GetEntry has the rest."""

BESIDE_BYTES_MAX: Final = 512 * 1024
"""Longest reasoning of a message, and longest arguments of all its calls together, in bytes."""

_WHOLE: Final = Wanted()


def list_messages(
    connection: Connection, rules: StoreRules, address: RunRef, size: int, token: str, check_time: Callable[[], None]
) -> tuple[list[run_message_pb2.RunMessage], list[Turn], str]:
    """A page of messages among `size` entries, with their turns, and the token of the next one. See `list_entries`."""
    query = EntryQuery(size=size, token=token, schemes=frozenset(MESSAGE_SCHEMES), by_position=True)
    listed, next_token = list_entries(connection, rules, address, query, check_time)
    entries = messages_in(listed)
    turns: dict[int, Turn] = {}
    if numbers := sorted({turn_of(entry) for entry in entries} - {0}):
        named = turns_by_number(connection, address.project, address.run, numbers)
        turns = {turn.number: turn for turn in named}
    run = get_run_head(connection, address.project, address.run)
    page: list[run_message_pb2.RunMessage] = []
    room = PAGE_BYTES_MAX
    for entry, parts in _with_parts(connection, run, entries):
        message = run_message_to_pb(_cut(_for_readers(entry, parts, turns.get(turn_of(entry)))))
        room -= message.ByteSize()
        if page and room < 0:
            # Its parts have made it longer than the entries were: the page ends at the last message that fits.
            shown = sum(one.position <= page[-1].position for one in listed)
            _, next_token = list_entries(
                connection, rules, address, replace(query, size=shown, bodies=False), check_time
            )
            break
        page.append(message)
    of_page = {one.turn for one in page}
    return page, [turn for number, turn in turns.items() if number in of_page], next_token


def _with_parts(
    connection: Connection, run: RunHead, entries: Sequence[Entry]
) -> Iterator[tuple[Entry, Mapping[str, Entry]]]:
    """The messages, each with what it is made of beside itself. The records of a reply mostly follow it."""
    listed = {entry.path: entry for entry in entries}
    missing = {entry.path: [path for path in parts_of(entry) if path not in listed] for entry in entries}
    rows = find_entry_rows(
        connection, run.id, list(dict.fromkeys(path for paths in missing.values() for path in paths))
    )

    def weight(entry: Entry) -> int:
        return sum(weight_of(rows[path], _WHOLE) for path in missing[entry.path] if path in rows)

    for some in split_by_weight(entries, weight):
        wanted = {path: rows[path] for entry in some for path in missing[entry.path] if path in rows}
        loaded = load_entries(connection, run, list(wanted.values()), _WHOLE)
        parts = listed | {entry.path: entry for entry in loaded}
        yield from ((entry, parts) for entry in some)


def _for_readers(entry: Entry, parts: Mapping[str, Entry], turn: Turn | None) -> RunMessage:
    """A message. A prompt that no user wrote is a prompt for its model alone (OM32)."""
    message = run_message(entry, parts, turn, recorded_call)
    return replace(message, kind=MessageKind.SYNTHETIC) if is_synthetic(entry) else message


def _cut(message: RunMessage) -> RunMessage:
    """The message with each text truncated to its share."""
    content = message.message
    size = len(content.text.encode())
    if size > TEXT_BYTES_MAX:
        whole = max(size, message.text_size_bytes)
        content = replace(content, parts=(Text(cut_bytes(content.text, TEXT_BYTES_MAX)),))
        message = replace(message, text_size_bytes=whole)
    content = replace(
        content, reasoning=cut_bytes(content.reasoning, BESIDE_BYTES_MAX), calls=_cut_calls(content.calls)
    )
    return replace(message, message=content)


def _cut_calls(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    if sum(len(call.arguments.encode()) for call in calls) <= BESIDE_BYTES_MAX:
        return calls
    most = BESIDE_BYTES_MAX // len(calls)
    return tuple(replace(call, arguments=cut_bytes(call.arguments, most)) for call in calls)
