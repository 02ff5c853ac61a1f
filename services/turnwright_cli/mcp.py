"""`turnwright mcp serve`: the agent as an MCP server, on standard input and output."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from turnwright_cli.exit_codes import FAILED, FailureError
from turnwright_cli.invocation import Invocation
from turnwright_cli.session import open_session


async def serve(call: Invocation, *, model: str | None) -> int:
    try:
        from turnwright_mcp.agent import AgentTools, serve_agent
    except ModuleNotFoundError as error:
        raise FailureError(FAILED, f"{error}. Install the extra: pip install 'turnwright[mcp]'.") from None

    @asynccontextmanager
    async def connect() -> AsyncGenerator[AgentTools, None]:
        async with open_session(call.settings, stays=False) as session:
            project = await session.client.init_project(call.root)
            yield AgentTools(session.client, project.name, model or call.defaults.model or "")

    await serve_agent(connect)
    return 0
