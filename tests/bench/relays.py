"""Bare gRPC servers, the floors of streams: one that fans out what it was given, and one that passes on what it reads.

python relays.py fan-out ADDRESS FILE    lines of JSON: seconds since the start, and a message in base64
python relays.py relay ADDRESS UPSTREAM  an HTTP URL, the address of another relay, or `tokens:COUNT:PERIOD_S`
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import uvloop

FOLLOW = "/floor.Stream/Follow"
START = "/floor.Stream/Start"


class FanOut:
    """Sends the same messages to all that follow, each at its time since Start."""

    def __init__(self, file: Path) -> None:
        read = map(json.loads, file.read_text().splitlines())
        self._messages = [(at_s, base64.b64decode(data)) for at_s, data in read]
        self._due = [asyncio.Event() for _ in self._messages]
        self._sending: asyncio.Task[None] | None = None

    async def start(self, _request: bytes, _context: Any) -> bytes:
        due, self._due = self._due, [asyncio.Event() for _ in self._messages]
        self._sending = asyncio.create_task(self._send(due))
        return b""

    async def _send(self, due: list[asyncio.Event]) -> None:
        begin = time.monotonic()
        for (at_s, _), event in zip(self._messages, due, strict=True):
            await asyncio.sleep(begin + at_s - time.monotonic())
            event.set()

    async def follow(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        due = self._due
        # A first message says that it is followed.
        yield b"."
        for event, (_, message) in zip(due, self._messages, strict=True):
            await event.wait()
            yield message


class Relay:
    """Passes on the messages of another relay, the chunks of an HTTP answer, or tokens that it makes itself."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._http = httpx.AsyncClient(timeout=None)
        self._channel = None if ":" in upstream[5:] else grpc.aio.insecure_channel(upstream)

    async def start(self, _request: bytes, _context: Any) -> bytes:
        return b""

    async def follow(self, request: bytes, _context: Any) -> AsyncIterator[bytes]:
        if self._channel:
            async for message in self._channel.unary_stream(FOLLOW)(request):
                yield message
        elif self._upstream.startswith("tokens:"):
            _, count, period_s = self._upstream.split(":")
            begin = time.monotonic()
            for number in range(int(count)):
                await asyncio.sleep(begin + number * float(period_s) - time.monotonic())
                yield b"word"
        else:
            async with self._http.stream("POST", self._upstream, content=request) as answer:
                async for chunk in answer.aiter_raw():
                    yield chunk


async def main(kind: str, address: str, source: str) -> None:
    served = FanOut(Path(source)) if kind == "fan-out" else Relay(source)
    handlers = {
        "Start": grpc.unary_unary_rpc_method_handler(served.start),
        "Follow": grpc.unary_stream_rpc_method_handler(served.follow),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("floor.Stream", handlers),))
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
