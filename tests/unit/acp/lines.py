"""A connection over two pipes, and what a client on the other side writes and reads."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

from turnwright_acp.jsonrpc import Answer, Connection, RpcError

Message = dict[str, Any]


class Peer:
    """The client's side. What it reads is kept in order."""

    def __init__(self, write_fd: int, read_fd: int) -> None:
        self._write_fd, self._read_fd = write_fd, read_fd
        self._rest = b""
        self._is_ended = self._is_closed = False
        self._reading = asyncio.Lock()
        self.read: list[Message] = []

    async def send(self, *messages: Message | bytes) -> None:
        data = b"".join(
            (one if isinstance(one, bytes) else json.dumps({"jsonrpc": "2.0", **one}).encode()) + b"\n"
            for one in messages
        )
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._write_fd, view) :]

    def end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            os.close(self._write_fd)

    async def close(self) -> None:
        """Whoever reads comes to the end first: to the one who waits, the number may be that of another file by then."""
        async with self._reading:
            self._is_closed = True
            os.close(self._read_fd)

    async def next(self) -> Message:
        """The next message; raises EOFError at the end."""
        while b"\n" not in self._rest:
            async with self._reading:
                chunk = b"" if self._is_closed else await asyncio.to_thread(os.read, self._read_fd, 65_536)
            if not chunk:
                raise EOFError
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        message = json.loads(line)
        self.read.append(message)
        return message

    async def answer(self, number: Any) -> Message:
        """The answer to a request."""
        while True:
            message = await self.next()
            if "method" not in message and message.get("id") == number:
                return message

    async def call(self, number: Any, method: str, params: Any) -> Message:
        await self.send({"id": number, "method": method, "params": params})
        return await self.answer(number)


@asynccontextmanager
async def served(serve: Callable[[int, int], Any]):
    """A peer of what `serve` makes of two descriptors; ends with it."""
    from_client, to_agent = os.pipe()
    to_client, from_agent = os.pipe()
    peer = Peer(to_agent, to_client)

    async def serving():
        try:
            await serve(from_client, from_agent)
        finally:
            os.close(from_agent)

    task = asyncio.create_task(serving())
    peer.task = task  # type: ignore[attr-defined]
    try:
        yield peer
    finally:
        peer.end()
        await task
        await peer.close()
        os.close(from_client)


async def echo(method: str, params: Message) -> Answer:
    match method:
        case "echo":
            return Answer(params)
        case "wait":
            await asyncio.Event().wait()
            return Answer(None)
        case "break":
            raise ZeroDivisionError
    raise RpcError(-32601, "no such method")


def echoing(heard: list[tuple[str, Message]]):
    def serve(input_fd: int, output_fd: int):
        return Connection(input_fd, output_fd, echo, lambda *told: heard.append(told)).serve()

    return serve
