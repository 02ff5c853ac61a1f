"""Processes to measure: a bare echo server as the floor, and a store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc

ECHO_METHOD = "/floor.Echo/Call"
IMPATIENT = (("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 20))
"""Options of a channel that tries again at once: the default waits a second, and then longer, for who starts."""


async def serve_echo(address: str) -> None:
    """A grpc.aio server without interceptors that gives each message back."""

    async def echo(request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
        return request

    handler = grpc.method_handlers_generic_handler("floor.Echo", {"Call": grpc.unary_unary_rpc_method_handler(echo)})
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


@contextlib.asynccontextmanager
async def process(
    *command: str, address: str, credentials: grpc.ChannelCredentials | None = None, **environment: str
) -> AsyncIterator[int]:
    """A Python process that listens on an address, with TLS if there are credentials for it; its id.

    It is killed at the end.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNWRIGHT_")}
    running = await asyncio.create_subprocess_exec(sys.executable, *command, env={**kept, **environment})
    try:
        async with (
            grpc.aio.secure_channel(address, credentials, options=IMPATIENT)
            if credentials
            else grpc.aio.insecure_channel(address, options=IMPATIENT)
        ) as channel:
            await asyncio.wait_for(channel.channel_ready(), 120)
        yield running.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.kill()
        await running.wait()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Priority over other work on the host, for this process and what it starts, where that is allowed."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


@contextlib.asynccontextmanager
async def echo_process(folder: Path) -> AsyncIterator[str]:
    """The address of an echo server."""
    address = f"unix:{folder}/echo.sock"
    async with process(__file__, address, address=address):
        yield address


@contextlib.asynccontextmanager
async def store_process(folder: Path, secret: str, db: str = "") -> AsyncIterator[str]:
    """The address of a store on a database: a file in the folder unless it is said otherwise."""
    address = f"unix:{folder}/store.sock"
    settings = {
        "TURNWRIGHT_HOME": str(folder),
        "TURNWRIGHT_TOKEN": secret,
        "TURNWRIGHT_LISTEN": address,
        "TURNWRIGHT_LOG_LEVEL": "error",
        "TURNWRIGHT_DB": db or str(folder / "bench.db"),
    }
    async with process("-m", "turnwright_store", address=address, **settings):
        yield address


if __name__ == "__main__":
    asyncio.run(serve_echo(sys.argv[1]))
