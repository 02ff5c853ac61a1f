"""The messages of a run, in pages. Core decides which entries are messages (C40)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright.types.v1 import run_message_pb2
from turnwright_values.replies import ToolCall
from turnwright_values.types import Entry, MessageKind, RunMessage, Turn

from turnwright_core.batching import split_by_weight
from turnwright_core.chat.message import Text
from turnwright_core.chat.timeline import MESSAGE_SCHEMES, is_synthetic, messages_in, parts_of, run_message, turn_of
from turnwright_core.limits import PAGE_BYTES_MAX
from turnwright_core.text import cut_bytes
from turnwright_core.wire.command_records import recorded_call
from turnwright_core.wire.messages import run_message_to_pb
from turnwright_store.app.list_entries import EntryQuery, list_entries
from turnwright_store.app.read_view import weight_of
from turnwright_store.app.registry import turns_by_number
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.runs import RunHead, get_run_head
from turnwright_store.sql.views import Wanted, find_entry_rows

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
