"""`turnwright acp`: the agent of an editor, on standard input and output, where nothing else is written."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from turnwright_acp.agent import Agent
from turnwright_acp.jsonrpc import INTERNAL_ERROR, RpcError
from turnwright_cli.exit_codes import FailureError
from turnwright_cli.invocation import Invocation
from turnwright_cli.session import open_session
from turnwright_client import Client


async def serve(call: Invocation, *, model: str | None) -> int:
    output = os.dup(1)
    # What anything else prints must not get between the lines of the protocol (AG09).
    os.dup2(2, 1)

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Client, None]:
        async with AsyncExitStack() as leaving:
            try:
                session = await leaving.enter_async_context(open_session(call.settings, stays=False))
            except FailureError as error:
                raise RpcError(INTERNAL_ERROR, error.message) from error
            yield session.client

    is_remote = bool(call.settings.server)
    await Agent(connect, model or call.defaults.model or "", is_remote=is_remote).serve(0, output)
    return 0
