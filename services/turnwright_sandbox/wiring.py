"""The composition root of a sandbox host."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import grpc
from turnwright.tool.v1 import tool_service_pb2, tool_service_pb2_grpc
from turnwright_values.types import Tier

from turnwright_executor.shell.local_host import LocalHost
from turnwright_kit.sandbox.finding import SandboxMissingError, find_sandbox
from turnwright_kit.service import Service
from turnwright_kit.settings import SettingsError
from turnwright_sandbox.config import SandboxSettings
from turnwright_sandbox.host import SandboxHost

GRPC_NAME: Final[str] = tool_service_pb2.DESCRIPTOR.services_by_name["ToolService"].full_name


def build(settings: SandboxSettings, _secret: str) -> Service:
    """The service, ready to be served."""
    wired = _Wired(settings)
    return Service("sandbox", GRPC_NAME, wired.register, floor=Tier.SYSTEM, start=wired.start, settings=settings)


class _Wired:
    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings

    async def start(self) -> None:
        """Raises SettingsError."""
        settings = self._settings
        root = await asyncio.to_thread(_root_of, settings)
        writable, more = (
            [path for path in paths.split(os.pathsep) if path] for paths in (settings.sh_writable, settings.sh_readable)
        )
        try:
            sandbox = await find_sandbox(settings.sh_sandbox, settings.home, writable, more)
        except SandboxMissingError as error:
            raise SettingsError(f"TURNWRIGHT_SH_SANDBOX: {error}") from None
        self._servicer = SandboxHost(LocalHost(settings, sandbox), root)

    def register(self, server: grpc.aio.Server) -> None:
        tool_service_pb2_grpc.add_ToolServiceServicer_to_server(self._servicer, server)


def _root_of(settings: SandboxSettings) -> str:
    """Where the projects are, as a real path. Raises SettingsError."""
    try:
        return str(Path(settings.sandbox_root).expanduser().resolve(strict=True))
    except (OSError, RuntimeError) as error:
        raise SettingsError(f"TURNWRIGHT_SANDBOX_ROOT: {error}") from None
