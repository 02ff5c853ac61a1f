"""No call waits for ever: a service that takes calls and never answers is given up after a setting. Row RU304."""

from __future__ import annotations

import asyncio
import socket

import pytest

from services import SECRET
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build
from turnwright_kit.server import RunningServer

pytestmark = pytest.mark.asyncio


async def test_a_service_that_never_answers_is_given_up_after_the_timeout_of_calls(tmp_path):
    """The socket of the store takes connections, and nobody reads from them."""
    silent = socket.socket(socket.AF_UNIX)
    silent.bind(f"{tmp_path}/store.sock")
    silent.listen()
    at = {name: f"unix:{tmp_path}/{name}.sock" for name in ("store", "assembler", "provider", "executor")}
    settings = ExecutorSettings(
        home=tmp_path,
        token=SECRET,
        listen=at["executor"],
        recover=False,
        rpc_timeout_s=0.3,
        sh_sandbox="limits",
        **{name: at[name] for name in ("store", "assembler", "provider")},
    )
    server = RunningServer(build(settings, SECRET), at["executor"], SECRET, 0.5)
    await server.start()
    async with Client.connect(at["executor"], SECRET) as client:
        async with asyncio.timeout(60):
            with pytest.raises(TurnwrightError) as refused:
                await client.init_project(str(tmp_path))
    await server.stop()
    silent.close()
    assert (refused.value.reason, refused.value.metadata["service"]) == (Reason.SERVICE_UNAVAILABLE, "store")
