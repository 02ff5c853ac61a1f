"""Settings of the process that calls MCP servers."""

from __future__ import annotations

from typing import Final

from turnwright_kit.sandbox.sandbox import SH_READABLE, SH_SANDBOX, SH_WRITABLE, SandboxChoice
from turnwright_kit.settings import PeerSettings, setting

DEFAULT_LISTEN: Final = "127.0.0.1:7445"


class McpSettings(PeerSettings):
    """Its settings. Its servers are confined like commands, by the settings that executors have for those."""

    sh_sandbox: SandboxChoice = SH_SANDBOX
    sh_writable: str = SH_WRITABLE
    sh_readable: str = SH_READABLE
    mcp_hosts: str = setting(
        "Where the owners of projects may have MCP servers by URL: hosts, also as patterns like `*.example.com`, "
        "separated by commas. Empty: nowhere.",
        "",
    )
    mcp_servers_max: int = setting("MCP servers that run for one project at a time.", 16, ge=1, le=1000)
    mcp_servers_all_max: int = setting("MCP servers that run for all projects at a time.", 128, ge=1, le=10_000)
    mcp_idle_s: float = setting(
        "End an MCP server that nobody has used for so long, in seconds.", 600.0, gt=0, le=86400
    )
