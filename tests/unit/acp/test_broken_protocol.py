"""Ten thousand lines of broken protocol: the agent lives, and answers each that is no notification (AG03)."""

import asyncio
import json
import random
from contextlib import asynccontextmanager

import pytest

from turnwright_acp.agent import Agent
from turnwright_core.errors import Reason, fault
from unit.acp.lines import served
from unit.acp.test_jsonrpc import is_owed_an_answer

METHODS = (
    "initialize", "authenticate", "session/new", "session/load", "session/resume", "session/fork", "session/list",
    "session/close", "session/delete", "session/set_mode", "session/set_config_option", "session/prompt",
    "session/cancel", "$/cancel_request", "session/dance", "", "\ud800", 5, None,
)  # fmt: skip
SCALARS = (None, True, False, 0, -1, 1.5, 10**30, 1e308, "", "x", "\x00", "\ud800", "\u2028", "a/b" * 200, "/", "rel")
NAMES = (
    "sessionId", "cwd", "mcpServers", "prompt", "type", "text", "modeId", "configId", "value", "_meta", "requestId",
    "protocolVersion", "clientCapabilities", "plan", "fs", "data", "mimeType", "resource", "uri", "cursor", "methodId",
)  # fmt: skip


def value(draw, depth=0):
    kind = draw.random()
    if kind < 0.6 or depth > 4:
        return draw.choice(SCALARS)
    if kind < 0.8:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(NAMES): value(draw, depth + 1) for _ in range(draw.randrange(6))}


def line(draw):
    """A message with things put in the wrong place, left out, cut off or damaged."""
    message = {
        "jsonrpc": draw.choice(("2.0", "2.0", "2.0", "1.0", 2, None)),
        "id": draw.choice((draw.randrange(10**6), str(draw.random()), value(draw))),
        "method": draw.choice(METHODS),
        "params": {name: value(draw) for name in draw.sample(NAMES, draw.randrange(6))},
        "result": value(draw),
        "error": value(draw),
    }
    for name in draw.sample(list(message), draw.choice((1, 2, 2, 2, 3, 4))):
        del message[name]
    data = bytearray(json.dumps(message).encode())
    for _ in range(draw.choice((0, 0, 0, 1, 3))):
        place = draw.randrange(len(data))
        data[place : place + draw.randrange(4)] = bytes(draw.randrange(256) for _ in range(draw.randrange(4)))
    return bytes(data).replace(b"\n", b" ")[: draw.choice((10**6, 10**6, 10**6, 40))]


@asynccontextmanager
async def no_services():
    raise fault(Reason.SERVICE_UNAVAILABLE, "There are no services.")
    yield


@pytest.mark.asyncio
async def test_ten_thousand_lines_of_broken_protocol():
    draw = random.Random(33)
    lines = [b'{"jsonrpc":"2.0","id":"first","method":"initialize","params":{"protocolVersion":1}}']
    lines += [line(draw) for _ in range(10_000)]
    async with served(Agent(no_services).serve) as peer:

        async def write():
            for start in range(0, len(lines), 100):
                await peer.send(*lines[start : start + 100])
            await peer.send({"id": "last", "method": "session/dance", "params": {}})

        writing = asyncio.create_task(write())
        answers = [await peer.answer("last")]
        await writing
        peer.end()
        while True:
            try:
                await peer.next()
            except EOFError:
                break
        answers = peer.read
    assert len(answers) == 1 + sum(map(is_owed_an_answer, lines))
    assert {one["jsonrpc"] for one in answers} == {"2.0"}
    # None of them is a fault of ours.
    internal = [one for one in answers if "Internal error" in one.get("error", {}).get("message", "")]
    assert internal == []
