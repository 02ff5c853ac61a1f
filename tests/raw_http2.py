"""A caller that speaks HTTP/2 itself and never grants a window: what it is answered stays with the server."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING = 0, 1, 4, 6
END_STREAM, END_HEADERS, ACK = 1, 4, 1
INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def field(name: str, value: str) -> bytes:
    """A header field that is in no table, as it is."""
    return b"\x00" + b"".join(length(len(text)) + text for text in (name.encode(), value.encode()))


def length(size: int) -> bytes:
    """A length of HPACK, with a prefix of seven bits."""
    return bytes((size,)) if size < 127 else b"\x7f" + varint(size - 127)


def varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes((*made, number))


class NeverReads:
    """One connection with a window of no bytes. `answered` are streams that began an answer, `ended` those that end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._next = 1
        self.answered: set[int] = set()
        self.ended: set[int] = set()
        self.streams_max = 0
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, address: str) -> NeverReads:
        if address.startswith("unix:"):
            reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
        no_window = struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)
        writer.write(PREFACE + frame(SETTINGS, 0, 0, no_window))
        return cls(reader, writer)

    def call(self, method: str, message: bytes, headers: Sequence[tuple[str, str]]) -> int:
        """Begin a call; its stream."""
        stream, self._next = self._next, self._next + 2
        block = b"".join(
            field(name, value)
            for name, value in (
                (":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost"),
                ("content-type", "application/grpc"), ("te", "trailers"), *headers,
            )
        )  # fmt: skip
        body = struct.pack(">BI", 0, len(message)) + message
        self._writer.write(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body))
        return stream

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await self._reader.readexactly(9)
                (size,), (kind, flags, stream) = struct.unpack(">I", b"\0" + head[:3]), struct.unpack(">BBI", head[3:])
                payload = await self._reader.readexactly(size)
                if kind == HEADERS:
                    self.answered.add(stream)
                    if flags & END_STREAM:
                        self.ended.add(stream)
                elif kind == SETTINGS and not flags & ACK:
                    settings = dict(struct.iter_unpack(">HI", payload))
                    self.streams_max = settings.get(3, self.streams_max)
                    self._writer.write(frame(SETTINGS, ACK, 0, b""))
                elif kind == PING and not flags & ACK:
                    self._writer.write(frame(PING, ACK, 0, payload))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
