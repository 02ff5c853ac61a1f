"""Model servers of others as processes, and one call to them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import httpx
import pytest
from turnwright_values.provider import Finish

from turnwright_core.chat.message import Message
from turnwright_core.chat.reply import PartialReply
from turnwright_provider.domain.endpoints import EndpointSpec
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.presets import BY_NAME, NAMELESS
from turnwright_provider.domain.wires.wire import Wire
from turnwright_provider.vendors.http import HttpVendor
from turnwright_provider.vendors.transport import HttpLimits

READY_S = 180


@contextlib.contextmanager
def serving(command: Sequence[str], folder: Path, health_url: str, more: Mapping[str, str] = {}) -> Iterator[None]:
    """A server, once it is ready. `more` are variables of its environment."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **more}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + READY_S
        while not _answers(health_url):
            if time.monotonic() > deadline or process.poll() is not None:
                pytest.fail(f"{command[0]} did not start: {log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code < 500
    except httpx.TransportError:
        return False


@contextlib.asynccontextmanager
async def vendor_at(base_url: str, wire: Wire, key: str = "", preset: str = "") -> AsyncIterator[HttpVendor]:
    spec = EndpointSpec("any", BY_NAME.get(preset, NAMELESS), wire.name, base_url, key)
    vendor = HttpVendor(spec, wire, HttpLimits(60, 10))
    try:
        yield vendor
    finally:
        await vendor.close()


async def reply(vendor: HttpVendor, call: ModelCall) -> tuple[Message, Finish]:
    partial, finish = PartialReply(), None
    async for event in vendor.stream(call, 1):
        if isinstance(event, Finish):
            finish = event
        else:
            partial.add(event)
    assert finish
    return partial.message(call.vendor_model or "v/m"), finish
