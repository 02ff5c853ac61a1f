"""A small OpenAI-compatible HTTP server for tests: real sockets, no network, every fault on demand.

    async with SseServer(replies=["first reply", "second reply"]) as server:      replies, one per call, in order
        OPENAI_BASE_URL = server.url
    async with SseServer([error(429, "slow down", headers={"retry-after": "0.01"}), chat("hello")]) as server:
        ...
        assert server.requests[0].json["model"] == "tiny"

An Answer is what one request gets; the constructors below make the usual ones. `SseServer(answers, replies=, models=,
tls=)` takes the answers in order, for POST requests; then the replies; then it refuses. `GET /v1/models` lists
`models`, or is a 404 where that is None; `pages` are other answers, JSON or an Answer, by their path; these requests are
in `server.looks`. `request.closed` is set when the client hung up before the answer was whole.

In a process of its own, for subprocess tests; prints its URL, then serves until it is ended:

    python tests/sse_server.py --port 0 --replies FILE [--models a,b] [--requests FILE]

The replies FILE is a JSON list of strings, or text whose replies stand after lines `=== reply ===`.
`--requests` names a file that gets each request's JSON body as a line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

HEAD_BYTES_MAX = 64 * 1024
TLS_HELLO = b"\x16"
REASONS = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request gets: head, then the chunks as written, one TCP write each, `pause_s` between them.

    `end`: `clean`, `cut` (the connection is reset), `hang` (nothing follows until the client goes away).
    `framing`: `chunked`, `length`, `close` (the end of the connection ends the body), or `raw`, where the chunks are all
    that is sent, head included, and the connection ends after them.
    `silent`: not even a head. `gate`: an event to wait for before the chunk after the first.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    chunks: Sequence[bytes] = ()
    pause_s: float = 0.0
    end: str = "clean"
    framing: str = "chunked"
    silent: bool = False
    gate: asyncio.Event | None = None


@dataclass(slots=True)
class Request:
    """A request as it came. Header names are lower case; `connection` counts the client's connections from 1."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


Reply = Answer | Callable[[Request], Answer]


# ---- The usual answers


def events(*payloads: Any, done: bool = True, ending: str = "\n\n") -> list[bytes]:
    """One chunk per payload, each a whole event; a str goes as it is, anything else as JSON."""
    texts = [p if isinstance(p, str) else json.dumps(p, ensure_ascii=False) for p in payloads]
    return [f"data: {text}{ending}".encode() for text in [*texts, *(["[DONE]"] if done else [])]]


def delta(model: str = "tiny", finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk of a stream with these fields in its delta."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}


def usage_chunk(prompt: int, completion: int, model: str = "tiny") -> dict[str, Any]:
    """The last chunk of a stream with include_usage."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [],
        "usage": usage,
    }


def chat(
    text: str,
    *,
    reasoning: str = "",
    tool_calls: Sequence[dict[str, Any]] = (),
    chunk_chars: int = 16,
    prompt_tokens: int = 10,
    finish: str = "stop",
    pause_s: float = 0.0,
) -> Answer:
    """A whole reply, streamed in pieces of `chunk_chars`, with usage (4 characters a token) and [DONE]."""
    cut = [text[i : i + chunk_chars] for i in range(0, len(text), chunk_chars)]
    payloads = [delta(role="assistant", content="")]
    payloads += [delta(reasoning_content=reasoning)] if reasoning else []
    payloads += [delta(content=piece) for piece in cut]
    payloads += [delta(tool_calls=list(tool_calls))] if tool_calls else []
    payloads += [delta(finish=finish), usage_chunk(prompt_tokens, -(-len(text) // 4))]
    return Answer(chunks=events(*payloads), pause_s=pause_s)


def json_answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """A JSON body."""
    return Answer(
        status,
        {"content-type": "application/json", **(headers or {})},
        [json.dumps(body, ensure_ascii=False).encode()],
        framing="length",
    )


def error(
    status: int, message: str, type_: str = "", code: Any = None, headers: dict[str, str] | None = None
) -> Answer:
    """An error in OpenAI's shape."""
    return json_answer({"error": {"message": message, "type": type_, "param": None, "code": code}}, status, headers)


def plain(text: str, content_type: str = "text/html", status: int = 200) -> Answer:
    """A body that is neither events nor JSON."""
    return Answer(status, {"content-type": content_type}, [text.encode()], framing="length")


def never() -> Answer:
    """No answer at all; the connection stays open."""
    return Answer(silent=True, end="hang")


def hang_up() -> Answer:
    """The connection is reset without an answer."""
    return Answer(silent=True, end="cut")


# ---- The server


class SseServer:
    """Serves on 127.0.0.1. Use as an async context manager."""

    def __init__(
        self,
        answers: Iterable[Reply] = (),
        *,
        replies: Iterable[str] = (),
        models: Sequence[str] | None = None,
        pages: Mapping[str, Any] | None = None,
        tls: bool = False,
        port: int = 0,
        log: Path | None = None,
    ) -> None:
        self.requests: list[Request] = []
        """Those for completions."""
        self.looks: list[Request] = []
        """All others: at lists of models, and at `pages`."""
        self.port = port
        self._answers = list(answers)
        self._replies = list(replies)
        self._replied = 0
        self._connections = 0
        self._models = models
        self._pages = pages or {}
        self._tls = tls
        self._log = log
        self._server: asyncio.Server | None = None
        self._arrived = asyncio.Condition()
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The base URL, with /v1."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    def add(self, *answers: Reply) -> None:
        """Append answers."""
        self._answers.extend(answers)

    def forget(self) -> None:
        """Drop the answers that nobody has asked for."""
        self._answers.clear()

    async def wait_for(self, count: int) -> Request:
        """The `count`-th request for a completion, once it has arrived."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def __aenter__(self) -> Self:
        context = self_signed() if self._tls else None
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self._connections += 1
        connection = self._connections
        try:
            ahead: bytes | None = b""
            while ahead is not None and (request := await _read_request(reader, ahead)) is not None:
                request.connection = connection
                ahead = await self._answer(request, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client went, or the test is over; both are ends. A handler that stayed cancelled would be reported.
            pass
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """Answer one request; what has been read of the next one, or None when the connection is at its end."""
        answer = self._choose(request)
        async with self._arrived:
            is_look = request.method == "GET" or request.path in self._pages
            (self.looks if is_look else self.requests).append(request)
            self._arrived.notify_all()
        sending = asyncio.ensure_future(_send(answer, request, writer))
        # A client sends nothing while it waits, so what can be read before the answer's end is its hanging up.
        watching = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done() or sending.exception() is not None:
                request.closed.set()
                return None
            if answer.end != "clean" or answer.framing in ("close", "raw"):
                return None
            # A quick client may have begun its next request by now; its first byte must not get lost.
            return (watching.result() or None) if watching.done() else b""
        finally:
            sending.cancel()
            watching.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)

    def _choose(self, request: Request) -> Answer:
        page = self._pages.get(request.path.partition("?")[0])
        if page is not None:
            return page if isinstance(page, Answer) else json_answer(page)
        if request.method == "GET":
            listed = [{"id": name, "object": "model", "owned_by": "tests"} for name in self._models or ()]
            return error(404, "Not Found") if self._models is None else json_answer({"object": "list", "data": listed})
        if self._log is not None:
            with self._log.open("a") as log:
                log.write(json.dumps(request.json) + "\n")
        if self._answers:
            answer = self._answers.pop(0)
            return answer(request) if callable(answer) else answer
        if self._replied < len(self._replies):
            self._replied += 1
            prompt_tokens = sum(len(str(m.get("content"))) for m in request.json.get("messages", [])) // 4
            return chat(self._replies[self._replied - 1], prompt_tokens=prompt_tokens)
        return error(400, f"this server was given {len(self._replies)} replies, and all have been sent")


async def _read_request(reader: asyncio.StreamReader, ahead: bytes) -> Request | None:
    try:
        first = ahead or await reader.readexactly(1)
        if first == TLS_HELLO:
            return None
        head = first + await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    assert len(head) < HEAD_BYTES_MAX
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, body)


async def _send(answer: Answer, request: Request, writer: asyncio.StreamWriter) -> None:
    if not answer.silent:
        writer.write(_head(answer))
        await writer.drain()
        async for chunk in _paced(answer):
            framed = b"%x\r\n%s\r\n" % (len(chunk), chunk) if answer.framing == "chunked" and chunk else chunk
            writer.write(framed)
            await writer.drain()
    if answer.end == "hang":
        await asyncio.Event().wait()
    if answer.end == "clean" and answer.framing == "chunked" and not answer.silent:
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    if answer.framing in ("close", "raw") and answer.end == "clean":
        writer.write_eof()
    request.answered.set()


async def _paced(answer: Answer) -> AsyncIterator[bytes]:
    for number, chunk in enumerate(answer.chunks):
        if number == 1 and answer.gate is not None:
            await answer.gate.wait()
        if number and answer.pause_s:
            await asyncio.sleep(answer.pause_s)
        elif number:
            await asyncio.sleep(0)
        yield chunk


def _head(answer: Answer) -> bytes:
    if answer.framing == "raw":
        return b""
    lines = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.framing == "chunked":
        lines.append("transfer-encoding: chunked")
    if answer.framing == "length":
        lines.append(f"content-length: {sum(map(len, answer.chunks))}")
    if answer.framing == "close":
        lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def self_signed() -> ssl.SSLContext:
    """A server's TLS context with a certificate made now, that nobody trusts."""
    openssl = shutil.which("openssl")
    assert openssl, "the TLS tests make a certificate with the openssl command; install it"
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = Path(folder, "key.pem"), Path(folder, "certificate.pem")
        subprocess.run(
            [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    return context


# ---- As a process of its own


def read_replies(path: Path) -> list[str]:
    """The replies of a file: a JSON list, or texts after lines `=== reply ===`."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        replies: list[str] = json.loads(text)
        return replies
    first, *rest = re.split(r"^=== reply\b.*===[ \t]*\n", text, flags=re.MULTILINE)
    return [part.strip("\n") for part in ([first] if first.strip() else []) + rest]


async def _main() -> None:
    parser = argparse.ArgumentParser(description="A local OpenAI-compatible server that replays replies.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--replies", type=Path, required=True)
    parser.add_argument("--models", type=lambda text: text.split(","), default=None)
    parser.add_argument("--requests", type=Path, default=None)
    options = parser.parse_args()
    replies = read_replies(options.replies)
    async with SseServer(replies=replies, models=options.models, port=options.port, log=options.requests) as server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
