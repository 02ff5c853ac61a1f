"""Sandbox hosts for tests: real ones, with a secret of their own, and stacks whose projects are on them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from contract.executor.tool_servers import stack
from turnwright_kit.server import RunningServer
from turnwright_sandbox.config import SandboxSettings
from turnwright_sandbox.wiring import build

TOKEN = "secret-of-the-host"


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
