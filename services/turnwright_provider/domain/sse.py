"""Events from bytes, whatever the chunks: server-sent events, or a JSON object on each line (Ollama).

Lines end in LF, CRLF or CR; a BOM is skipped. Server-sent events may have comments and several lines of data, with two
deviations from the standard: a last event without its blank line counts (one recorded server omits it), and a field
`error` is an event of that name (older llama.cpp).
Source: research/wire 2.1; cases refact/sse_parse, wire/constructed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from msgspec import Struct

from turnwright_provider.domain.failures import FailureClass, failed

_BOM: Final = b"\xef\xbb\xbf"


class SseEvent(Struct, frozen=True):
    """One event; the name is empty where the server gave none."""

    name: str
    data: str


class EventReader(ABC):
    """Takes bytes, gives events. `event_bytes_max` bounds a line and an event."""

    def __init__(self, event_bytes_max: int) -> None:
        self._event_bytes_max = event_bytes_max
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._after_cr = False
        self._at_start = True

    @abstractmethod
    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        """Take one line, and add the events that it completes."""

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that this chunk completes. Raises VendorError for one over the limit."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        events: list[SseEvent] = []
        for line in chunk.splitlines(keepends=True):
            if line.endswith((b"\n", b"\r")):
                self._line(self._whole(line.rstrip(b"\r\n")), events)
            else:
                self._keep(line)
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        return events

    def end(self) -> list[SseEvent]:
        """The remaining events at a clean end of the connection."""
        events: list[SseEvent] = []
        if self._rest:
            self._line(self._whole(b""), events)
        return events

    def _keep(self, part: bytes) -> None:
        self._rest.append(part)
        self._rest_bytes += len(part)
        self._check(self._rest_bytes)

    def _whole(self, last: bytes) -> bytes:
        if self._rest:
            last = b"".join((*self._rest, last))
            self._rest, self._rest_bytes = [], 0
        if self._at_start:
            self._at_start = False
            last = last.removeprefix(_BOM)
        return last

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._event_bytes_max:
            raise failed(FailureClass.PROTOCOL, f"an event is longer than {self._event_bytes_max} bytes")


class LineReader(EventReader):
    """A line is an event."""

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        self._check(len(line))
        if line.strip():
            events.append(SseEvent("", line.decode("utf-8", "replace")))


class SseReader(EventReader):
    """Lines of fields make an event, which a blank one ends."""

    def __init__(self, event_bytes_max: int) -> None:
        super().__init__(event_bytes_max)
        self._name = ""
        self._data: list[str] = []
        self._data_bytes = 0

    def end(self) -> list[SseEvent]:
        events = super().end()
        self._dispatch(events)
        return events

    def _line(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            self._dispatch(events)
            return
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(text)
            # An empty line counts too: a list of millions of them is long.
            self._data_bytes += len(line) + 1
            self._check(self._data_bytes)
        elif field == b"event":
            self._name = text
        elif field == b"error":
            events.append(SseEvent("error", text))

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            events.append(SseEvent(self._name, "\n".join(self._data)))
        self._name, self._data, self._data_bytes = "", [], 0
