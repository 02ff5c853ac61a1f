"""`python -m turnwright_mcp`: what calls MCP servers, as a separate process."""

from turnwright_kit.main import run_service
from turnwright_mcp.config import DEFAULT_LISTEN, McpSettings
from turnwright_mcp.wiring import build

if __name__ == "__main__":
    run_service(McpSettings, DEFAULT_LISTEN, build)
