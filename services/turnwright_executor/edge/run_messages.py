"""The messages of a run for clients, in pages. Core decides which entries are messages (C40)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace
from turnwright.executor.v1 import query_pb2
from turnwright.store.v1 import ledger_pb2, read_pb2, store_service_pb2_grpc

from turnwright_core.chat.message import Text, ToolCall
from turnwright_core.chat.run_message import MessageKind, RunMessage
from turnwright_core.chat.timeline import MESSAGE_SCHEMES, is_synthetic, messages_in, parts_of, run_message, turn_of
from turnwright_core.entries import Entry
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.kit.peer import Peer
from turnwright_core.limits import PAGE_BYTES_MAX
from turnwright_core.runs import Turn
from turnwright_core.text import cut_bytes
from turnwright_core.wire.command_records import recorded_call
from turnwright_core.wire.entries import entry_from_pb
from turnwright_core.wire.run_messages import run_message_to_pb
from turnwright_core.wire.runs import turn_from_pb, turn_to_pb
from turnwright_executor.domain.addresses import RunAddress

TEXT_BYTES_MAX: Final = 1024 * 1024
"""Longest text of a message, in bytes; GetEntry has the rest."""

BESIDE_BYTES_MAX: Final = 512 * 1024
"""Longest reasoning of a message, and longest arguments of all its calls together, in bytes."""


class RunMessages:
    """Reads the messages of runs from the store."""

    def __init__(self, store: Peer) -> None:
        self._store = store
        self._rows = store_service_pb2_grpc.StoreServiceStub(store.channel)

    async def read(self, request: query_pb2.ListMessagesRequest) -> query_pb2.ListMessagesResponse:
        """A page of messages with their turns. Raises TurnwrightError."""
        address = RunAddress(request.project, request.run)
        wanted = read_pb2.ListEntriesRequest(
            project=request.project, run=request.run, schemes=MESSAGE_SCHEMES, by_position=True,
            page_size=request.page_size, page_token=request.page_token,
        )  # fmt: skip
        page = await self._store.call(self._rows.ListEntries, wanted)
        listed = [entry_from_pb(entry) for entry in page.entries]
        entries = messages_in(listed)
        parts = await self._parts(address, entries)
        turns = await self._turns(address, {turn_of(entry) for entry in entries})
        messages = [_cut(_for_readers(entry, parts, turns.get(turn_of(entry)))) for entry in entries]
        answer = _fitting(messages)
        token = page.next_page_token
        if len(answer.messages) < len(messages):
            # Calls have made it longer than the entries were: the page ends at the last message that fits.
            last = answer.messages[-1].position
            wanted.page_size, wanted.without_bodies = sum(entry.position <= last for entry in listed), True
            token = (await self._store.call(self._rows.ListEntries, wanted)).next_page_token
        answer.turns.extend(
            turn_to_pb(turns[number]) for number in sorted({one.turn for one in answer.messages} & turns.keys())
        )
        answer.next_page_token = token
        return answer

    async def _parts(self, address: RunAddress, entries: Sequence[Entry]) -> dict[str, Entry]:
        """What the messages are made of beside themselves. The records of a reply mostly follow it."""
        found = {entry.path: entry for entry in entries}
        missing = [
            path for path in dict.fromkeys(path for entry in entries for path in parts_of(entry)) if path not in found
        ]
        return found | {entry.path: entry for entry in await self._entries(address, missing)}

    async def _entries(self, address: RunAddress, paths: Sequence[str]) -> list[Entry]:
        if not paths:
            return []
        wanted = read_pb2.GetEntriesRequest(project=address.project, run=address.run, paths=paths)
        try:
            answer = await self._store.call(self._rows.GetEntries, wanted)
        except TurnwrightError as error:
            if error.reason is not Reason.LIMIT_EXCEEDED or len(paths) == 1:
                raise
            # They are too many for an answer, or too long together.
            half = len(paths) // 2
            return [*await self._entries(address, paths[:half]), *await self._entries(address, paths[half:])]
        return [entry_from_pb(entry) for entry in answer.entries]

    async def _turns(self, address: RunAddress, numbers: Iterable[int]) -> dict[int, Turn]:
        named = [number for number in numbers if number]
        if not named:
            return {}
        wanted = ledger_pb2.ListTurnsRequest(project=address.project, run=address.run, numbers=named)
        answer = await self._store.call(self._rows.ListTurns, wanted)
        return {turn.number: turn_from_pb(turn) for turn in answer.turns}


def _for_readers(entry: Entry, parts: Mapping[str, Entry], turn: Turn | None) -> RunMessage:
    """A message. A prompt that no user wrote is a prompt for its model alone (OM32)."""
    message = run_message(entry, parts, turn, recorded_call)
    return replace(message, kind=MessageKind.SYNTHETIC) if is_synthetic(entry) else message


def _fitting(messages: Iterable[RunMessage]) -> query_pb2.ListMessagesResponse:
    """The first messages that a page holds, but one at least."""
    answer = query_pb2.ListMessagesResponse()
    room = PAGE_BYTES_MAX
    for message in messages:
        encoded = run_message_to_pb(message)
        room -= encoded.ByteSize()
        if answer.messages and room < 0:
            break
        answer.messages.append(encoded)
    return answer


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
