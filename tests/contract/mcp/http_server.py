"""A server of MCP by streamable HTTP with the official SDK: `python http_server.py PORT [TOKEN]`; with a token it wants that."""

import asyncio
import os
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("http")


@server.tool()
async def echo(text: str) -> str:
    return f"{os.getpid()}: {text}"


@server.tool()
async def count(to: int, ctx: Context) -> str:
    for number in range(to):
        await ctx.report_progress(number + 1, to, f"step {number + 1}")
    return "counted"


@server.tool()
async def huge() -> str:
    return "x" * 100_000_000


class Guarded:
    """Answers 401 to requests without the token."""

    def __init__(self, app, token):
        self.app, self.token = app, token

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and dict(scope["headers"]).get(b"x-key") != self.token.encode():
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})
            return
        await self.app(scope, receive, send)


async def main():
    app = server.streamable_http_app()
    if len(sys.argv) > 2:
        app = Guarded(app, sys.argv[2])
    made = uvicorn.Server(uvicorn.Config(app, port=int(sys.argv[1]), log_level="error"))
    await made.serve()


asyncio.run(main())
