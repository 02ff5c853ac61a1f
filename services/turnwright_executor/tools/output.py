"""The output channels of a running command: opened before it, growing with it, closed after it.

Every append has an offset, so it can be retried when the store did not answer without duplicating or losing output;
while the store is unavailable the command waits. A channel that somebody else has ended refuses appends; then the
command is stopped. Source: rows RU072, RU082, RU163, RU170-RU174, RU176; architecture 3 (streaming bodies).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from turnwright_values.store import AppendEntry, EntryWrite, SetEntry
from turnwright_values.types import State, Tier, Visibility

from turnwright_core.backoff import Backoff
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.json_text import JsonObject
from turnwright_core.limits import CHUNK_BYTES, SUMMARY_CHARS_MAX
from turnwright_core.streams import CHANNELS, PRODUCER, channel_path
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.endings import AWAY
from turnwright_executor.tools.contract import Context, Entries
from turnwright_executor.tools.listing import plural

WRITE_BACKOFF: Final = Backoff(0.05, 1.0)
"""Backoff for retrying an append, without a limit: the lease limits how long that makes sense."""

PIECE_CHARS_MAX: Final = CHUNK_BYTES // 4
"""Code points of one append, four bytes each at most: the kept end of an output may exceed one write."""


SHOWN_AT_ONCE_BYTES_MAX: Final = 16 * 1024
"""Longest output of a failed command, in bytes, that becomes visible as a whole: more would push other results of the
turn out of the window. For a longer one the summary shows the end.
"""


TAIL_CHARS_MAX: Final = 16 * 1024
"""How much of a channel's end a result of a transcript contains, in code points."""


class OutputEndedError(Exception):
    """Somebody else has ended the output of a command."""


class _Channel(Struct):
    """One output channel. Mutable: counts while the command runs."""

    number: int
    path: str
    lines: int = 0
    bytes_: int = 0
    open_line: bool = False
    tail: str = ""
    """The end of what came."""

    def count(self, text: str) -> None:
        self.tail = (self.tail + text)[-TAIL_CHARS_MAX:]
        self.lines += text.count("\n")
        self.bytes_ += len(text.encode())
        self.open_line = not text.endswith("\n")

    @property
    def line_count(self) -> int:
        """Lines so far, including an unfinished one."""
        return self.lines + self.open_line

    @property
    def size(self) -> str:
        return plural(self.line_count, "line") if self.bytes_ else "empty"


class CommandOutput(Struct):
    """The channels of one command, two by default."""

    context: Context
    command: str
    producer: str = ""
    """The client that produces the output; empty: the owner of the run."""
    numbers: tuple[int, ...] = CHANNELS
    _channels: dict[int, _Channel] = {}

    def __post_init__(self) -> None:
        """The channels' paths follow from the record's."""
        record = self.context.record_path
        self._channels = {number: _Channel(number, channel_path(record, number)) for number in self.numbers}

    @property
    def paths(self) -> list[str]:
        return [channel.path for channel in self._channels.values()]

    async def open(self) -> None:
        """Create the channels, empty and streaming, once the store is available. Raises TurnwrightError."""
        await _stored(self.context.entries, self.opened())

    def opened(self) -> tuple[EntryWrite, ...]:
        return tuple(self._opened(channel) for channel in self._channels.values())

    def _opened(self, channel: _Channel) -> EntryWrite:
        summary = " ".join(self.command.split())[:SUMMARY_CHARS_MAX]
        shown = {"command": self.command, "channel": channel.number, "summary": summary}
        attributes = to_attributes_json(shown | ({PRODUCER: self.producer} if self.producer else {}))
        change = SetEntry("", attributes, visibility=Visibility.SUMMARIZED, state=State.STREAMING)
        return EntryWrite(channel.path, change, Tier.PLUGIN)

    async def append(self, number: int, text: str) -> None:
        """Append text to a channel, once. Returns when it is stored; raises OutputEndedError, TurnwrightError."""
        channel = self._channels[number]
        for begin in range(0, len(text), PIECE_CHARS_MAX):
            piece = text[begin : begin + PIECE_CHARS_MAX]
            await self._append(channel, piece)
            channel.count(piece)

    async def send_heartbeats(self, every_s: float) -> None:
        """Send heartbeats while the command runs. Raises OutputEndedError, TurnwrightError."""
        while True:
            await asyncio.sleep(every_s)
            for channel in self._channels.values():
                await self._append(channel, "")

    async def _append(self, channel: _Channel, text: str) -> None:
        write = EntryWrite(channel.path, AppendEntry(text, channel.bytes_), Tier.PLUGIN)
        try:
            await _stored(self.context.entries, [write])
        except TurnwrightError as error:
            if error.reason is Reason.TRANSITION_FORBIDDEN:
                raise OutputEndedError from None
            raise

    def closed(self, state: State, outcome: str) -> tuple[EntryWrite, ...]:
        """The writes that end the channels; of a failed command, short non-empty ones become visible."""
        return tuple(_closed(channel, state, outcome) for channel in self._channels.values())

    def summary(self) -> str:
        """The channels with their sizes, for the record's line."""
        return ", ".join(f"{channel.path} ({channel.size})" for channel in self._channels.values())

    def tail(self) -> str:
        """The end of what both channels have, one after the other."""
        return "\n".join(channel.tail for channel in self._channels.values() if channel.tail)

    def size_attributes(self) -> list[JsonObject]:
        """The channels with their sizes, for the record's attributes."""
        return [
            {"path": channel.path, "lines": channel.line_count, "bytes": channel.bytes_}
            for channel in self._channels.values()
        ]


async def _stored(entries: Entries, writes: Sequence[EntryWrite]) -> None:
    """Write with retries while the store is unavailable."""
    pauses = WRITE_BACKOFF.pauses()
    while True:
        try:
            await entries.write(writes)
        except TurnwrightError as error:
            if error.reason not in AWAY:
                raise
        else:
            return
        await asyncio.sleep(next(pauses))


def _closed(channel: _Channel, state: State, outcome: str) -> EntryWrite:
    is_shown = state is State.FAILED and 0 < channel.bytes_ <= SHOWN_AT_ONCE_BYTES_MAX
    visibility = Visibility.VISIBLE if is_shown else Visibility.UNSPECIFIED
    return EntryWrite(channel.path, SetEntry(state=state, outcome=outcome, visibility=visibility), Tier.PLUGIN)
