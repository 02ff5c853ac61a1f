"""Streams as server-sent events: a request in plain JSON becomes one of the Connect protocol, and its answer events.

Everything between the two is the same call. The event `end` says that the stream has ended, with `error` before it if
it failed; without one of them, the connection was lost, and the client calls again with the id of the last event.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final
from urllib.parse import parse_qs

from connectrpc.method import MethodInfo
from google.protobuf.message import DecodeError

from turnwright_kit.http.codecs import EVENTS, JSON_BYTES_MAX, loaded
from turnwright_kit.http.exchange import AsgiEvent, Exchange, Receive, Scope, Send

KIND: Final = "text/event-stream"
HEAD_BYTES: Final = 5
"""Bytes before a message in a stream of the Connect protocol: flags and length."""

END: Final = 0b10
"""The flag of a stream's last message."""

STATUS: Final = {
    "invalid_argument": 400, "unauthenticated": 401, "permission_denied": 403, "not_found": 404, "already_exists": 409,
    "resource_exhausted": 429, "failed_precondition": 400, "aborted": 409, "out_of_range": 400, "unavailable": 503,
    "deadline_exceeded": 504, "unimplemented": 501,
}  # fmt: skip
"""HTTP's status for a code of the Connect protocol, where it is not 500."""


def asks_for_events(exchange: Exchange) -> bool:
    return KIND.encode() in exchange.headers.get(b"accept", b"")


def as_stream(scope: Scope) -> Scope:
    """The request as one of the Connect protocol."""
    dropped = (b"content-type", b"connect-content-encoding", b"connect-accept-encoding", b"content-encoding")
    kept = [(name, value) for name, value in scope["headers"] if name not in dropped]
    return {**scope, "method": "POST", "headers": [*kept, (b"content-type", f"application/connect+{EVENTS}".encode())]}


def received(scope: Scope, exchange: Exchange, method: MethodInfo[Any, Any]) -> Receive:
    is_read = False

    async def receive() -> AsgiEvent:
        nonlocal is_read
        if is_read:
            return await exchange.receive()
        is_read = True
        body = _query(scope) if scope["method"] == "GET" else await _body(exchange)
        if (last := exchange.headers.get(b"last-event-id")) and "after" in method.input.DESCRIPTOR.fields_by_name:
            body = _after(body, last.decode("latin-1"))
        return {"type": "http.request", "body": bytes(1) + len(body).to_bytes(4, "big") + body, "more_body": False}

    return receive


async def _body(exchange: Exchange) -> bytes:
    body, more = bytearray(), True
    # A little more than is taken tells that it is too much.
    while more and len(body) <= JSON_BYTES_MAX:
        event = await exchange.receive()
        body += event.get("body", b"")
        more = bool(event.get("more_body"))
    return bytes(body)


def _query(scope: Scope) -> bytes:
    """The message in the query of a GET, as unary calls of the Connect protocol have it; without one, an empty one."""
    query = parse_qs(scope["query_string"].decode("ascii"))
    message: str = query.get("message", ["{}"])[0]
    if query.get("base64") != ["1"]:
        return message.encode()
    try:
        return base64.urlsafe_b64decode(f"{message}===")
    except (binascii.Error, ValueError):
        return b""


def _after(body: bytes, last: str) -> bytes:
    """The request, to be answered from after the event with this id on."""
    try:
        request = loaded(body)
        request["after"] = loaded(last.encode()) if last.startswith("{") else last
    except (DecodeError, TypeError):
        return body
    return json.dumps(request).encode()


def sent(exchange: Exchange) -> Send:
    """Sends the answer as events; an error before the first one has a status of its own."""
    start: AsgiEvent | None = None

    async def send(event: AsgiEvent) -> None:
        nonlocal start
        if event["type"] == "http.response.start":
            start = event
            return
        body = event["body"]
        flags, content = body[0], body[HEAD_BYTES:]
        error = json.loads(content).get("error") if flags & END else None
        if start is not None and error:
            await exchange.answer(STATUS.get(error["code"], 500), json.dumps(error, ensure_ascii=False).encode())
            return
        if start is not None:
            headers = [(b"content-type", KIND.encode()), (b"x-accel-buffering", b"no")]
            await exchange.send({**start, "headers": headers})
            start = None
        if flags & END:
            failed = (
                b"event: error\ndata: " + json.dumps(error, ensure_ascii=False).encode() + b"\n\n" if error else b""
            )
            content = failed + b"event: end\ndata: {}\n\n"
        await exchange.send({"type": "http.response.body", "body": content, "more_body": event["more_body"]})

    return send
