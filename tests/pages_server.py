"""A small web server for tests: real sockets on loopback, every answer and every fault on demand.

    async with PagesServer() as server:
        server.pages["/doc"] = html("<p>Hello</p>")
        ... fetch server.url + "/doc"
        assert server.requests[0].headers["user-agent"]

A page is what each request for its path gets, whatever its query; another path is a 404.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Served:
    """What a request gets. `repeats`: how often the chunks are sent, `pause_s` between them."""

    chunks: Iterable[bytes] = ()
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    repeats: int = 1
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came; header names in lower case."""

    target: str
    headers: dict[str, str]


def html(body: str, *, charset: str = "utf-8", title: str = "") -> Served:
    head = f"<title>{title}</title>" if title else ""
    text = f"<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>"
    return Served([text.encode(charset)], {"content-type": f"text/html; charset={charset}"})


def typed(data: bytes, media_type: str) -> Served:
    return Served([data], {"content-type": media_type})


def found(*results: dict[str, Any]) -> Served:
    """What a SearXNG instance answers."""
    return typed(json.dumps({"query": "q", "results": results}).encode(), "application/json")


def redirect(to: str, status: int = 302) -> Served:
    return Served((), {"location": to}, status)


@dataclass
class PagesServer:
    """Serves `pages` by path. `url` ends without a slash."""

    pages: dict[str, Served] = field(default_factory=dict)
    requests: list[Asked] = field(default_factory=list)
    url: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Closed connections are taken down by the loop's next rounds.
        await asyncio.sleep(0.01)

    @property
    def targets(self) -> list[str]:
        return [request.target for request in self.requests]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = (line.split(": ", 1) for line in head[1:] if line)
            asked = Asked(head[0].split(" ")[1], {name.lower(): value for name, value in pairs})
            self.requests.append(asked)
            missing = Served((), {}, 404)
            await self._answer(self.pages.get(asked.target.partition("?")[0], missing), writer)

    async def _answer(self, page: Served, writer: asyncio.StreamWriter) -> None:
        headers = "".join(f"{name}: {value}\r\n" for name, value in page.headers.items())
        # The end of the connection ends the body.
        writer.write(f"HTTP/1.1 {page.status} Answer\r\nconnection: close\r\n{headers}\r\n".encode())
        for _ in range(page.repeats):
            for chunk in page.chunks:
                writer.write(chunk)
                await writer.drain()
                if page.pause_s:
                    await asyncio.sleep(page.pause_s)
