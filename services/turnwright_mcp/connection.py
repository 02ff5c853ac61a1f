"""One server as one project has it: it starts with the first use, and again after it has ended, with growing pauses.

A task of its own holds the session, because what a session opens must be closed by the task that opened it. Calls are
made by others, through `client`. Source: docs/adr/0084.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Protocol

import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext
from turnwright.tool.v1 import tool_service_pb2

from turnwright_core import __version__
from turnwright_core.backoff import Backoff
from turnwright_kit.logs import get_logger
from turnwright_mcp.incoming import OpenStreams
from turnwright_mcp.registration import McpRegistration, McpServer
from turnwright_mcp.results import tools_to_pb
from turnwright_mcp.transports import Complaint, Streams

BACKOFF: Final = Backoff(0.5, 60.0)
WAITED_S: Final = 2.0
"""Pauses up to so many seconds are waited for, so that a call that may be made again is."""
STEADY_S: Final = 30.0
"""Seconds after which a server that ends counts as one that had started."""
LIST_S: Final = 60.0
"""Seconds for which a list of tools counts, if its server does not say that it has changed."""
PAGES_MAX: Final = 100
TOOLS_MAX: Final = 1000
DETAIL_CHARS_MAX: Final = 500
_CLOSED: Final = "Connection closed"
"""What the SDK says of a connection that has ended, which adds nothing to why it has."""
LOGIN_NEEDED: Final = -32099
"""Code of the error that a request ends with, within this process, if its server answers that nobody has logged in."""

_log = get_logger("mcp")

Transport = Callable[[Complaint], AbstractAsyncContextManager[Streams]]


class Asking(Protocol):
    """A call in progress, to which questions of its server belong."""

    async def elicited(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """What a person answers."""

    async def sampled(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
        """What a model answers."""


class ServerAwayError(Exception):
    """A server that cannot be asked; nothing was sent. The text says why."""


class LoginNeededError(ServerAwayError):
    """A server that somebody has to log in at."""


class Listed:
    """A list of tools."""

    def __init__(self, tools: Sequence[tool_service_pb2.Tool]) -> None:
        self.tools = tools
        content = b"".join(tool.SerializeToString(deterministic=True) for tool in tools)
        self.version = hashlib.sha256(content).hexdigest()[:16]
        self.at_s = time.monotonic()


class McpConnection:
    """The session with a server."""

    def __init__(self, server: McpServer, registration: McpRegistration, root: Path) -> None:
        """`root`: of the project, of which the server is told."""
        self.server, self.registration, self.root = server, registration, root
        self.used_s = time.monotonic()
        self.calls: list[Asking] = []
        """Those in progress."""
        self._wanted = 0
        self._client: Client | None = None
        self._holding: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Client] | None = None
        self._over = asyncio.Event()
        self._failures = 0
        self._not_before_s = 0.0
        self._why = ""
        self._listed: Listed | None = None
        self._listing = asyncio.Lock()
        self._changes = 0
        """How often it has said that its list is another one."""
        self._complaint = Complaint()

    @property
    def is_live(self) -> bool:
        return self._holding is not None and not self._holding.done()

    @property
    def is_idle(self) -> bool:
        return not self.calls and not self._wanted

    @property
    def complaint(self) -> str:
        """What is known of why it has ended."""
        return self._complaint.words()[:DETAIL_CHARS_MAX]

    async def client(self, transport: Transport) -> Client:
        """The session, which is opened if there is none. Raises ServerAwayError."""
        self.used_s = time.monotonic()
        if self._holding is not None and self._over.is_set():
            # What has ended is cleared away first.
            await asyncio.wait((self._holding,))
        if self._holding is None or self._holding.done():
            left_s = self._not_before_s - time.monotonic()
            if left_s > WAITED_S:
                raise self._away(f"{self._why} It is started again in {left_s:.1f} s at the earliest.")
            self._not_before_s = 0.0
            self._ready = asyncio.get_running_loop().create_future()
            # Somebody else may wait for it, too; nobody has to.
            self._ready.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._over.clear()
            self._holding = asyncio.create_task(
                self._hold(transport, self._ready, left_s), name=f"mcp {self.server.name}"
            )
        assert self._ready is not None
        self._wanted += 1
        try:
            return await asyncio.shield(self._ready)
        finally:
            self._wanted -= 1

    async def tools(self, transport: Transport) -> Listed:
        """Its tools: of a server that has rested since, those that it had. Raises ServerAwayError."""
        known = self._listed
        if known is not None and (not self.is_live or time.monotonic() - known.at_s < LIST_S):
            return known
        client = await self.client(transport)
        async with self._listing:
            if self._listed is not known and self._listed is not None:
                return self._listed
            changes = self._changes
            try:
                listed = Listed(tools_to_pb(await _all_tools(client), self.registration))
            except Exception as error:
                raise self._away(f"{self.server.name} does not list its tools: {words_of(error)}") from error
            # What has changed while it was read is read again by the next one.
            self._listed = listed if changes == self._changes else None
            return listed

    async def close(self) -> None:
        """End the server."""
        self._over.set()
        if self._holding is not None:
            if self._ready is not None and not self._ready.done():
                self._holding.cancel()
            await asyncio.wait((self._holding,))

    def end(self) -> None:
        """Have it end, because it is broken."""
        self._over.set()

    async def _hold(self, transport: Transport, ready: asyncio.Future[Client], pause_s: float) -> None:
        """Open the session after a pause, and keep it until it is over. Never raises."""
        began_s = time.monotonic()
        self._complaint = complaint = Complaint()
        complaint.ended = self._over.set
        try:
            await asyncio.sleep(max(0.0, pause_s))
            async with (
                asyncio.timeout(self.registration.start_s) as starting,
                transport(complaint) as streams,
                self._session(streams) as client,
            ):
                starting.reschedule(None)
                began_s = time.monotonic()
                ready.set_result(client)
                await self._over.wait()
        except TimeoutError:
            self._failed(ready, f"it did not start within {self.registration.start_s:g} s", complaint)
        except Exception as error:  # noqa: BLE001 - another's program: whatever it does, it has ended
            self._failed(ready, words_of(error), complaint)
        else:
            self._failures = 0 if time.monotonic() - began_s > STEADY_S or not complaint.reason else self._failures + 1
            self._pause(complaint.words())
        finally:
            if not ready.done():
                ready.set_exception(ServerAwayError(f"The MCP server {self.server.name} was ended while it started."))

    def _session(self, streams: Streams) -> Client:
        return Client(
            OpenStreams(streams),
            elicitation_callback=self._elicited,
            sampling_callback=self._sampled,
            list_roots_callback=self._roots,
            message_handler=self._notified,
            client_info=types.Implementation(name="turnwright", version=__version__),
            cache=None,
        )

    def _failed(self, ready: asyncio.Future[Client], why: str, complaint: Complaint) -> None:
        self._failures += 1
        problem = complaint.words()
        why = problem if problem and why == _CLOSED else why
        self._pause(why if not problem or problem in why else f"{why}; {problem}")
        _log.warning("mcp_server_failed", server=self.server.name, project=self.server.project, problem=self._why)
        if not ready.done():
            ready.set_exception(self._away(self._why))

    def _away(self, text: str) -> ServerAwayError:
        return LoginNeededError(text) if self._complaint.login else ServerAwayError(text)

    def refusal(self, code: int) -> LoginNeededError | None:
        """Why a request was refused with a code, if that is for want of a login."""
        if code != LOGIN_NEEDED or not self._complaint.login:
            return None
        return LoginNeededError(f"The MCP server {self.server.name} cannot be asked: {self._complaint.login}.")

    def _pause(self, why: str) -> None:
        self._not_before_s = time.monotonic() + (BACKOFF.pause_s(self._failures) if self._failures else 0.0)
        self._why = f"The MCP server {self.server.name} cannot be asked: {why[:DETAIL_CHARS_MAX] or 'it has ended'}."

    async def _elicited(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        del context
        # With several calls in progress nobody can know whose question it is, and so whom to ask.
        if len(self.calls) != 1:
            return types.ElicitResult(action="cancel")
        return await self.calls[0].elicited(params)

    async def _sampled(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        del context
        return await self.sampled(params)

    async def sampled(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
        """What a model says to a server that asks it, or why none does."""
        if not self.registration.sampling:
            text = f"Nobody has allowed {self.server.name} to ask a model: `sampling` of its registration names one."
            return types.ErrorData(code=types.INVALID_REQUEST, message=text)
        if len(self.calls) != 1:
            text = "A model is asked for one call at a time: it is not known for which of several this is."
            return types.ErrorData(code=types.INVALID_REQUEST, message=text)
        return await self.calls[0].sampled(params)

    async def _roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        del context
        return self.roots()

    def roots(self) -> types.ListRootsResult:
        uri: Any = self.root.as_uri()
        return types.ListRootsResult(roots=[types.Root(uri=uri, name=self.server.project)])

    async def _notified(self, message: types.ServerNotification | Exception) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changes += 1
            self._listed = None


async def _all_tools(client: Client) -> list[types.Tool]:
    found: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor or len(found) >= TOOLS_MAX:
            break
    return found[:TOOLS_MAX]


def words_of(error: BaseException) -> str:
    """An error in one line, the first of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, httpx2.ConnectError):
        return f"its URL cannot be reached ({error}): see that it runs, and that the URL is right"
    return " ".join(str(error).split())[:DETAIL_CHARS_MAX] or type(error).__name__
