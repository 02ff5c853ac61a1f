"""The servers of all projects: at most so many at a time, and none longer than it is used.

A connection belongs to one project and one registration: two projects have two sessions, and two processes, with the
same server. Source: docs/adr/0084.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import httpx2
from msgspec import Struct

from turnwright_kit.sandbox.sandbox import Sandbox
from turnwright_mcp.connection import McpConnection, ServerAwayError, Transport
from turnwright_mcp.registration import AgentRegistration, McpRegistration, McpSecrets, McpServer, check_host
from turnwright_mcp.transports import Complaint, HttpServer, Pace, StdioServer, Streams

LOOK_S: Final = 5.0
"""Seconds between two looks for servers that nobody uses."""
_FROM_THE_ROOT: Final = ("/bin/sh", "-c", 'cd / && exec "$@"', "sh")
PROJECT: Final = "${PROJECT}"
"""Stands for the folder of the project in the arguments of the operator's programs."""
KNOWN_MAX: Final = 1024
"""Servers that are remembered, with the tools that they had."""

NAME_HEADER: Final = "turnwright-mcp-name"
REGISTRATION_HEADER: Final = "mcp"
"""What the registration of a tool server has; the executor sends it on."""
AGENT_HEADER: Final = "acp"
"""The same of an agent."""
SHARED_HEADER: Final = "turnwright-mcp-shared"
"""`true`: the operator has registered it. Only executors send headers that begin like this."""

FolderOf = Callable[[str], Awaitable[Path | None]]
"""The folder of a project on this host; None: it has none here."""
AuthOf = Callable[[McpServer, str, Complaint], httpx2.Auth]


class PoolLimits(Struct, frozen=True):
    """How many servers there are at a time, and for how long."""

    of_project: int = 16
    of_all: int = 128
    idle_s: float = 600.0
    hosts: tuple[str, ...] = ()
    """Where projects may have servers of their own by URL, as patterns."""


class Connections:
    """The servers. Closed at the end of the process."""

    def __init__(
        self,
        sandbox: Sandbox,
        secrets: McpSecrets,
        root_of: FolderOf,
        limits: PoolLimits,
        auth_of: AuthOf,
        caches: Path,
    ) -> None:
        """`caches`: folder of the directories that programs of one project write in the place of shared ones."""
        self._sandbox, self._secrets, self._root_of, self._limits = sandbox, secrets, root_of, limits
        self._auth_of, self._caches = auth_of, caches
        self._known: dict[McpServer, McpConnection] = {}
        self._agents: Counter[str] = Counter()
        """Agents at work, by project."""
        self._looking: asyncio.Task[None] | None = None
        self._paces: WeakValueDictionary[str, Pace] = WeakValueDictionary()
        """Of projects with servers at work."""

    async def opened(self, server: McpServer) -> tuple[McpConnection, Transport]:
        """The connection of a server, and how its session is opened. Raises ServerAwayError."""
        found = self._known.get(server)
        if found is None:
            found = await self._new(server)
        if not found.is_live:
            await self._make_room(found)
            # It may have been forgotten meanwhile, and what nobody knows is never ended.
            found = self._known.setdefault(server, found)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="idle mcp servers")
        return found, partial(self._transport, found)

    async def _new(self, server: McpServer) -> McpConnection:
        try:
            registration = server.registration()
            if registration.url:
                check_host(server, registration.url, self._limits.hosts)
        except ValueError as error:
            raise ServerAwayError(f"{server.name}: {error}") from None
        root = await self._folder_of(server)
        self._forget()
        return self._known.setdefault(server, McpConnection(server, registration, root))

    async def _folder_of(self, server: McpServer) -> Path:
        root = await self._root_of(server.project)
        if root is None:
            raise ServerAwayError(f"The folder of {server.project} is not on the host of its MCP servers.")
        return root

    def agent_text(self, server: McpServer) -> str:
        """What models read of an agent. Raises ValueError with a sentence if it could not be started."""
        found = server.agent()
        self._secrets.resolved(server, found.env)
        return found.description

    @asynccontextmanager
    async def agent(self, server: McpServer) -> AsyncIterator[tuple[AgentRegistration, StdioServer]]:
        """An agent's registration and program while it works for one call. Raises ServerAwayError."""
        at_work, limits = self._agents, self._limits
        if at_work[server.project] >= limits.of_project or at_work.total() >= limits.of_all:
            raise ServerAwayError("No more agents may work at a time: try again later.")
        at_work[server.project] += 1
        try:
            root = await self._folder_of(server)
            try:
                found = server.agent()
                program = self._program(server, found, root)
            except ValueError as error:
                raise ServerAwayError(f"{server.name}: {error}") from None
            yield found, program
        finally:
            # By this nothing is kept of a project without any.
            at_work -= Counter((server.project,))

    def _program(self, server: McpServer, found: McpRegistration | AgentRegistration, root: Path) -> StdioServer:
        """Raises ValueError with a sentence."""
        environment = self._secrets.resolved(server, found.env)
        own = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        caches = "" if server.is_shared else str(self._caches / own)
        argv: tuple[str, ...] = ("/usr/bin/env", found.command, *found.args)
        if server.is_shared:
            # What lies where npx or `python -m` starts comes first: no project may replace the operator's program.
            if "." in found.args:
                raise ValueError(f"it starts in /, so write {PROJECT} in place of `.` for the project's folder")
            argv = (*_FROM_THE_ROOT, *(word.replace(PROJECT, str(root)) for word in argv[1:]))
        secrets = self._secrets.named(server, found.env)
        return StdioServer(argv, root, environment, self._sandbox, self._pace_of(server), caches, secrets)

    def _transport(self, found: McpConnection, complaint: Complaint) -> AbstractAsyncContextManager[Streams]:
        registration = found.registration
        if registration.url:
            headers = self._secrets.resolved(found.server, registration.headers)
            auth = self._auth_of(found.server, registration.url, complaint)
            allows = partial(check_host, found.server, allowed=self._limits.hosts)
            return HttpServer(registration.url, headers, allows, auth, self._pace_of(found.server)).connected(complaint)
        return self._program(found.server, registration, found.root).connected(complaint)

    def _pace_of(self, server: McpServer) -> Pace:
        return self._paces.setdefault(server.project, Pace())

    async def _make_room(self, wanted: McpConnection) -> None:
        """Raises ServerAwayError if all that there may be are at work."""
        for project, most in ((wanted.server.project, self._limits.of_project), (None, self._limits.of_all)):
            # Another one may take the room while it is made.
            while len(live := self._live(project)) >= most:
                idle = min((one for one in live if one.is_idle), key=lambda one: one.used_s, default=None)
                if idle is None:
                    text = f"{most} MCP servers are at work, and no more may be at a time: try again later."
                    raise ServerAwayError(text)
                await idle.close()

    def _live(self, project: str | None) -> list[McpConnection]:
        """Those at work, of one project or of all."""
        return [one for one in self._known.values() if one.is_live and project in (None, one.server.project)]

    async def renew(self, server: McpServer) -> None:
        """End what was opened with another login, for one project or, if it is the operator's, for all."""
        same = [one for one in self._known if (one.name, one.is_shared) == (server.name, server.is_shared)]
        ended = [one for one in same if one.is_shared or one.project == server.project]
        # All are forgotten before one is waited for: another login may end them, too.
        await asyncio.gather(*(self._known.pop(one).close() for one in ended))

    def _forget(self) -> None:
        rests = [server for server, one in self._known.items() if not one.is_live]
        for server in rests[: max(0, len(self._known) - KNOWN_MAX + 1)]:
            del self._known[server]

    async def _look(self) -> None:
        """End servers that nobody has used for long."""
        while True:
            await asyncio.sleep(LOOK_S)
            before_s = time.monotonic() - self._limits.idle_s
            for one in list(self._known.values()):
                if one.is_live and one.is_idle and one.used_s < before_s:
                    await one.close()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.gather(*(one.close() for one in self._known.values()))


def registered_in(metadata: Mapping[str, str], project: str, *, is_of_project: bool = True) -> McpServer:
    """The server that a call is for: of a project, or else of all. Raises ValueError with a sentence."""
    is_agent = AGENT_HEADER in metadata
    header = AGENT_HEADER if is_agent else REGISTRATION_HEADER
    name, text = metadata.get(NAME_HEADER, ""), metadata.get(header, "")
    is_shared = metadata.get(SHARED_HEADER) == "true"
    if not name or not text or not (project or (is_shared and not is_of_project)):
        raise ValueError(f"a call names its project, and has the headers {NAME_HEADER} and {header}")
    return McpServer(project, name, text, is_shared, is_agent)
