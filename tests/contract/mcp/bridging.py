"""The process that calls MCP servers, in a test: its service before a real store, and an executor's calls to it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import httpx
from turnwright.tool.v1 import tool_service_pb2, tool_service_pb2_grpc

from ports import free_ports
from services import SECRET, Services, running
from turnwright_kit.server import RunningServer
from turnwright_mcp.config import McpSettings
from turnwright_mcp.connections import NAME_HEADER, REGISTRATION_HEADER, SHARED_HEADER
from turnwright_mcp.wiring import build

HOSTILE = Path(__file__).parent / "hostile.py"
OAUTH = Path(__file__).parent / "oauth_server.py"
AGENT = Path(__file__).parent / "acp_agent.py"


def hostile(kind: str, *more: str, **registration) -> dict:
    """The registration of a server that misbehaves."""
    return {"command": sys.executable, "args": [str(HOSTILE), kind, *more], **registration}


class Bridge:
    """The process, as executors call it."""

    def __init__(self, services: Services, channel: grpc.aio.Channel, header: str) -> None:
        self.services, self.header = services, header
        self.stub = tool_service_pb2_grpc.ToolServiceStub(channel)
        self.calls, self.start = 0, ""

    def metadata(self, registration: dict, *, shared: bool = True, name: str = "server"):
        return (
            ("authorization", f"Bearer {SECRET}"),
            (NAME_HEADER, name),
            (self.header, json.dumps(registration)),
            *([(SHARED_HEADER, "true")] if shared else []),
        )

    async def describe(self, registration: dict, project: str = "", version: str = "", **more):
        request = tool_service_pb2.DescribeRequest(project=project or self.services.project, version=version)
        return await self.stub.Describe(request, metadata=self.metadata(registration, **more), timeout=60)

    async def dispatch(self, registration: dict, tool: str = "work", *, timeout_s: float = 60, shared=True, **fields):
        """The events of a call; those of one to go on with have its id."""
        self.calls += "call_id" not in fields
        given = {
            "project": self.services.project,
            "run": "r",
            "call_id": f"log://{self.calls}",
            "arguments": "{}",
            "epoch": 1,
        }
        metadata = self.metadata(registration, shared=shared)
        while True:
            request = tool_service_pb2.DispatchRequest(tool=tool, start=self.start, **{**given, **fields})
            events = [one async for one in self.stub.Dispatch(request, metadata=metadata, timeout=timeout_s)]
            if not (events and events[-1].HasField("other_start")):
                return events
            self.start = events[-1].other_start.id

    async def refused(self, registration: dict, tool: str = "work", **more):
        """The error that a call ends with."""
        try:
            events = await self.dispatch(registration, tool, **more)
        except grpc.aio.AioRpcError as error:
            return error
        raise AssertionError(events)


def text(events) -> str:
    """What a call has come to."""
    return "\n".join(part.text for part in events[-1].result.parts)


@asynccontextmanager
async def bridging(root: Path, header: str = REGISTRATION_HEADER, **settings) -> AsyncIterator[Bridge]:
    given = {"sh_sandbox": "limits", "log_level": "error", "token": SECRET, "drain_s": 0.0, **settings}
    async with running(root) as services:
        made = McpSettings(home=root / "home", store=f"unix:{root}/store.sock", **given)
        server = RunningServer(build(made, SECRET), f"unix:{root}/mcp.sock", SECRET, made.drain_s)
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"unix:{root}/mcp.sock") as channel:
                yield Bridge(services, channel, header)
        finally:
            await server.stop()


@asynccontextmanager
async def oauth_server() -> AsyncIterator[str]:
    """The URL of oauth_server.py."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    process = await asyncio.create_subprocess_exec(sys.executable, str(OAUTH), url.rpartition(":")[2])
    try:
        async with httpx.AsyncClient() as client, asyncio.timeout(60):
            while True:
                try:
                    await client.get(f"{url}/seen")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
        yield url
    finally:
        process.kill()
        await process.wait()
