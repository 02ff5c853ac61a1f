"""One request and its response, as an ASGI application sees them: bounded in time, and in what waits to be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from email.utils import formatdate
from typing import Any, Final

from turnwright_core.errors import Reason, fault
from turnwright_kit.http.calls import refusal
from turnwright_kit.settings import HttpBounds

Scope = dict[str, Any]
AsgiEvent = dict[str, Any]
Receive = Callable[[], Awaitable[AsgiEvent]]
Send = Callable[[AsgiEvent], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

PIECE_BYTES: Final = 64 * 1024
"""Bytes that are written at once: so many, and as many more in the connection, wait for a client that reads slowly."""


class Exchange:
    """Wraps `receive` and `send`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, more: Headers, bounds: HttpBounds) -> None:
        """`more` are headers of the response."""
        self._receive, self._send, self._more = receive, send, tuple(more)
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self._is_read = not (self.length or b"transfer-encoding" in self.headers)
        self.is_upload = False
        self.take_in: Callable[[int], None] = lambda _: None
        """Called with the number of bytes of the body that have come."""
        self._bounds = bounds
        self._ends_s = asyncio.get_running_loop().time() + bounds.body_s

    @property
    def length(self) -> int:
        """Bytes of the body, as its header says; the HTTP library has checked that it is a number."""
        return int(self.headers.get(b"content-length", b"0"))

    async def receive(self) -> AsgiEvent:
        """The next part of the body; once it has ended, the client's leaving. Raises ConnectError."""
        if self._is_read:
            return await self._receive()
        now, body_s = asyncio.get_running_loop().time(), self._bounds.body_s
        try:
            async with asyncio.timeout_at(now + body_s if self.is_upload else self._ends_s):
                event = await self._receive()
        except TimeoutError:
            message = f"The request's body did not come within {body_s:g} s: send it faster, or in parts."
            raise refusal(fault(Reason.LIMIT_EXCEEDED, message, field="message", limit=body_s, unit="s")) from None
        self._is_read = not event.get("more_body")
        self.take_in(len(event.get("body", b"")))
        return event

    async def send(self, event: AsgiEvent) -> None:
        if event["type"] == "http.response.start":
            return await self._send({**event, "headers": [*event["headers"], *self._added(event["status"])]})
        body = memoryview(event.get("body", b""))
        for at in range(0, max(1, len(body)), PIECE_BYTES):
            piece = bytes(body[at : at + PIECE_BYTES])
            is_last = at + PIECE_BYTES >= len(body)
            async with asyncio.timeout(self._bounds.stalled_s):
                await self._send({**event, "body": piece, "more_body": bool(event.get("more_body")) or not is_last})
        return None

    def _added(self, status: int) -> Headers:
        yield b"date", formatdate(usegmt=True).encode()
        yield b"cache-control", b"no-store"
        yield b"x-content-type-options", b"nosniff"
        if status == 401:
            yield b"www-authenticate", b"Bearer"
        if not (self._is_read or 0 < self.length <= PIECE_BYTES):
            # What is left of the body is not read; little of it is passed over, so that the answer arrives.
            yield b"connection", b"close"
        yield from self._more

    async def answer(self, status: int, content: bytes, kind: str = "application/json", more: Headers = ()) -> None:
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(content)).encode()), *more]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": content})

    async def refuse(self, status: int, code: str, message: str, more: Headers = ()) -> None:
        """Answer with an error of the Connect protocol that concerns no call."""
        await self.answer(status, json.dumps({"code": code, "message": message}).encode(), more=more)
