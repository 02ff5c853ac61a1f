"""A service that cannot listen says where, and what to do."""

from __future__ import annotations

import socket

import pytest

from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

pytestmark = pytest.mark.asyncio


async def test_an_address_that_is_taken_is_named_with_the_option_for_another():
    closed = []

    async def close() -> None:
        closed.append("store")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        running = RunningServer(Service("store", "some.Service", lambda _: None, close=close), address, "secret", 1)
        with pytest.raises(OSError, match=f"^The store cannot listen on {address}: .* --listen store=HOST:PORT.$"):
            await running.start()
    assert closed == ["store"]
