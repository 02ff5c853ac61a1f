"""Sandbox hosts for tests: real ones, with a secret of their own, and stacks whose projects are on them."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from turnwright.tool.v1 import tool_service_pb2, tool_service_pb2_grpc, workspace_pb2

from contract.executor.tool_servers import stack
from turnwright_kit.server import RunningServer
from turnwright_sandbox.config import SandboxSettings
from turnwright_sandbox.wiring import build

TOKEN = "secret-of-the-host"
SHOP = workspace_pb2.WorkspacePlace(path="/shop")


def host_server(root: Path, **settings: Any) -> RunningServer:
    """A host that has projects in the folder `there`."""
    given = {"sh_sandbox": "limits", "log_level": "error", "token": TOKEN, "drain_s": 0.0, **settings}
    made = SandboxSettings(home=root / "host", sandbox_root=str(root / "there"), **given)
    return RunningServer(build(made, TOKEN), f"unix:{root}/box.sock", TOKEN, 0.0)


@asynccontextmanager
async def host(root: Path, **settings: Any):
    for folder in ("host", "there/shop"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    server = host_server(root, **settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def registered(root: Path, token: str = TOKEN) -> dict[str, Any]:
    """How the operator registers it."""
    return {
        "box": {
            "address": f"unix:{root}/box.sock",
            "workspaces": True,
            "headers": {"authorization": f"Bearer {token}"},
        }
    }


@asynccontextmanager
async def hosted_stack(root: Path, monkeypatch, token: str = TOKEN, **settings: Any):
    """A stack with a project at `box:/shop`; its files are below `root/there/shop`."""
    async with stack(root, monkeypatch, registered(root, token), **settings) as services:
        services.project = await services.client_project("box:/shop")
        services.folder = "there/shop"
        yield services


async def dispatched(
    root, tool, token=TOKEN, epoch=0, call_id="c", start="", lease_end=None, place=SHOP, times=1, **arguments
):
    """The events of a call of the host's own tools, or of the last of several."""
    async with grpc.aio.insecure_channel(f"unix:{root}/box.sock") as channel:
        stub = tool_service_pb2_grpc.ToolServiceStub(channel)
        request = tool_service_pb2.DispatchRequest(
            project="p", run="r", call_id=call_id, tool=tool, epoch=epoch, idempotency_key=secrets.token_hex(16),
            start=start, lease_end=lease_end,
            workspace=workspace_pb2.WorkspaceCall(place=place, **{tool: arguments}),
        )  # fmt: skip
        metadata = (("authorization", f"Bearer {token}"),)
        for _ in range(times):
            answers = [one async for one in stub.Dispatch(request, metadata=metadata, timeout=60)]
        return answers


async def refused(*given, **arguments):
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await dispatched(*given, **arguments)
    return error.value
