"""The process that calls MCP servers: one of the deployment, or one that this executor starts with the first need.

The executor knows nothing of MCP: a server with the address `mcp` is a server of tools, which that process is for it.
Source: docs/adr/0084.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Final

from msgspec import Struct
from turnwright_values.types import Tier

from turnwright_executor.domain.tool_servers import MCP, Away, RegisteredServer
from turnwright_kit.home import socket_address
from turnwright_kit.identity.credentials import Credentials
from turnwright_kit.logs import get_logger

START_S: Final = 20.0
"""Seconds that it may take to listen: a busy host needs some of them."""
POLL_S: Final = 0.02
PAUSE_S: Final = 1.0
"""Seconds between two starts."""
LEAVE_S: Final = 5.0
LOG_FILE: Final = "mcp.log"

_log = get_logger("mcp")


class BridgePlace(Struct, frozen=True):
    """Where it is, and what it is started with."""

    address: str
    """Empty: this executor starts it."""
    home: Path
    store: str
    secret: str
    token: str = ""
    """With which it is called; empty: one made from the secret."""
    has_tls: bool = False
    """Whether services of the deployment call each other with TLS, and so it."""


class McpBridge:
    """The process, and how it is called."""

    def __init__(self, place: BridgePlace) -> None:
        self._place = place
        self._credentials = Credentials(place.secret, MCP, Tier.SYSTEM, "executor", place.token)
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._started_s = 0.0

    async def server(self) -> RegisteredServer:
        """The process as a server of tools. Raises Away."""
        address = self._place.address or await self._started()
        is_secure = self._place.has_tls and not address.startswith("unix:")
        return RegisteredServer(MCP, address, "deployment" if is_secure else "none")

    def metadata(self, server: RegisteredServer) -> tuple[tuple[str, str], ...]:
        """What a call says beside the headers of the server."""
        shared = () if server.project else (("turnwright-mcp-shared", "true"),)
        sent = ((name, str(value)) for name, value in self._credentials.metadata())
        return (*sent, ("turnwright-mcp-name", server.name), *shared)

    async def close(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _started(self) -> str:
        address = socket_address(self._place.home, f"mcp-{os.getpid()}")
        if not address.startswith("unix:"):
            raise Away(
                "The path of the home is too long for a socket: set TURNWRIGHT_MCP, or a shorter TURNWRIGHT_HOME."
            )
        async with self._starting:
            if self._process is not None and not await _listens(address):
                # It has just ended, and the event loop may not know yet; or it has lost its socket.
                if self._process.returncode is None:
                    self._process.kill()
                await self._process.wait()
            if self._process is None or self._process.returncode is not None:
                await self._start(address)
        return address

    async def _start(self, address: str) -> None:
        if importlib.util.find_spec("mcp") is None:
            raise Away("MCP servers need the extra `mcp`: pip install 'turnwright[mcp]'.")
        await asyncio.sleep(max(0.0, self._started_s + PAUSE_S - time.monotonic()))
        self._started_s = time.monotonic()
        path = Path(address.removeprefix("unix:"))
        await asyncio.to_thread(path.unlink, missing_ok=True)
        environment = {
            **os.environ,
            "TURNWRIGHT_HOME": str(self._place.home),
            "TURNWRIGHT_LISTEN": address,
            "TURNWRIGHT_STORE": self._place.store,
            "TURNWRIGHT_TOKEN": self._place.secret,
            "TURNWRIGHT_READY_LISTEN": "",
        }
        log = self._place.home / LOG_FILE
        with log.open("ab") as output:
            log.chmod(0o600)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "turnwright_mcp.beside"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=output,
                env=environment,
            )
        _log.info("mcp_started", process=self._process.pid)
        end_s = time.monotonic() + START_S
        while not await _listens(address):
            if self._process.returncode is not None or time.monotonic() > end_s:
                raise Away(f"What calls MCP servers does not start here: {log} says why.")
            await asyncio.sleep(POLL_S)


async def _listens(address: str) -> bool:
    """Whether something takes connections at a socket."""
    try:
        _, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    except OSError:
        return False
    writer.close()
    return True
