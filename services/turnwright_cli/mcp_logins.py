"""`turnwright mcp login` and `logout`: a person's way to the authorization server of an MCP server, and back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from turnwright_cli.exit_codes import FAILED, FailureError, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import answer, complain, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_scope
from turnwright_cli.tools import CHECK_S, show_checked
from turnwright_core.private_files import read_private

PORT: Final = 7449
"""Where the browser comes back to by default."""
PATH: Final = "/callback"
REQUEST_BYTES_MAX: Final = 16_384
REQUEST_S: Final = 10.0
"""Seconds that a browser may take to say what it wants."""
WAIT_S: Final = 600.0
"""Seconds that a person may take; what calls the server waits as long."""
_PAGE: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"You may close this page, and go back to the terminal."
)
_NO_PAGE: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def log_in(
    call: Invocation,
    *,
    name: str,
    port: int,
    paste: bool,
    client_id: str,
    client_secret: Path | None,
    deployment: bool,
) -> int:
    try:
        secret = read_private(client_secret).decode().strip() if client_secret else ""
    except (OSError, ValueError) as error:
        raise usage(f"The secret of the client cannot be read: {error}.") from None
    coming = _Coming()
    async with (
        contextlib.nullcontext() if paste else _listening(port, coming),
        open_scope(call, deployment=deployment) as (client, project),
    ):
        redirect = f"http://127.0.0.1:{port}{PATH}"
        login, address = await client.begin_tool_login(
            project, name, redirect, client_id=client_id, client_secret=secret
        )
        coming.expect(address)
        report = complain if call.as_json else write_line
        report(f"Open this address in a browser, and log in there:\n\n  {safe_line(address)}\n")
        if paste:
            report("The browser then shows a page that cannot be reached: paste its address here, and press Enter.")
        try:
            async with asyncio.timeout(WAIT_S):
                callback = await (_pasted() if paste else coming.back)
        except TimeoutError:
            raise FailureError(FAILED, f"Nobody has logged in within {WAIT_S:g} s.") from None
        await client.complete_tool_login(project, name, login, callback)
        if project and not call.as_json:
            return show_checked(await client.list_tools(project, check=True, server=name, timeout_s=CHECK_S))
    return answer(call, [], f"{safe_line(name)}: logged in")


async def log_out(call: Invocation, *, name: str, deployment: bool) -> int:
    async with open_scope(call, deployment=deployment) as (client, project):
        await client.end_tool_login(project, name)
    return answer(call, [], f"{safe_line(name)}: logged out")


class _Coming:
    """The address with which the browser comes back from where it was sent."""

    def __init__(self) -> None:
        self.back: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._state = ""

    def expect(self, address: str) -> None:
        self._state = _state_of(address)

    def came(self, target: str) -> bool:
        """Whether this is it. What else asks here, such as another page, is of no account."""
        is_it = urlsplit(target).path == PATH and bool(self._state) and _state_of(target) == self._state
        if is_it and not self.back.done():
            self.back.set_result(target)
        return is_it


def _state_of(address: str) -> str:
    return parse_qs(urlsplit(address).query).get("state", [""])[0]


@contextlib.asynccontextmanager
async def _listening(port: int, coming: _Coming) -> AsyncGenerator[None, None]:
    async def answer_browser(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                method, _, rest = head.decode("latin-1").partition(" ")
                is_it = method == "GET" and coming.came(rest.partition(" ")[0])
                writer.write(_PAGE if is_it else _NO_PAGE)
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer_browser, "127.0.0.1", port, limit=REQUEST_BYTES_MAX)
    except OSError as error:
        raise usage(
            f"The browser cannot come back to port {port} of this host: {error.strerror}. Take another --port, "
            "or --paste."
        ) from None
    async with server:
        yield


def _pasted() -> Awaitable[str]:
    """A line of standard input. Read beside the event loop, because services may work in it."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def finish(text: str) -> None:
        if not line.done():
            line.set_result(text)

    def read() -> None:
        found = b""
        while b"\n" not in found and len(found) < REQUEST_BYTES_MAX and (piece := os.read(0, 4096)):
            found += piece
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, found.decode(errors="replace").strip())

    threading.Thread(target=read, name="pasted address", daemon=True).start()
    return line
