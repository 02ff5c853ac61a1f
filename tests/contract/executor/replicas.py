"""Two executors on one store in the test's process, what the first one is called with, and how tests watch."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import grpc

from services import SECRET, running, token_for
from sse_server import Answer, delta, events
from turnwright_client import Client
from turnwright_client.client import loop_in
from turnwright_core.errors import TurnwrightError
from turnwright_core.runs import LOOP_ENDED
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.server import RunningServer

DONE = '<update status="200">All is done.</update>'


OWNER_POLL_S = 0.1


def talking(enough: asyncio.Event) -> Answer:
    """A reply that goes on until a test has heard enough of it."""

    def said() -> Iterator[bytes]:
        while not enough.is_set():
            yield from events(delta(content="and "), done=False)
        yield from events(delta(content=DONE), delta(finish="stop"))

    return Answer(chunks=said(), pause_s=0.04)


class Seen(grpc.aio.ServerInterceptor):
    """Keeps what each call came with, and counts the watches that are open."""

    def __init__(self):
        self.calls = []
        self.watches_open = 0

    async def intercept_service(self, continuation, details):
        name = details.method.rpartition("/")[2]
        self.calls.append((name, dict(details.invocation_metadata)))
        handler = await continuation(details)
        return self._counted(handler) if name == "WatchRun" else handler

    def of(self, method):
        return [metadata for name, metadata in self.calls if name == method]

    def _counted(self, handler):
        async def watch(request, context):
            self.watches_open += 1
            try:
                await handler.unary_stream(request, context)
            finally:
                self.watches_open -= 1

        return grpc.unary_stream_rpc_method_handler(
            watch,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


@contextlib.asynccontextmanager
async def two_executors(root, *, advertised: str = "", **second: Any):
    """The owner of every run, a client of another executor that never looks for work, and what the owner was called.

    `advertised` is where the owner says that it is reached; keywords are settings of the other one.
    """
    seen = Seen()
    # With so long a lease no renewal is what tells the owner of an abort.
    async with running(root, [seen], owner_poll_s=OWNER_POLL_S, lease_s=60, advertise=advertised) as services:
        at = f"unix:{root}/second.sock"
        peers = {name: services.addresses[name] for name in ("store", "provider", "assembler")}
        settings = ExecutorSettings(
            home=root / "home", token=SECRET, log_level="error", listen=at, recover=False,
            **{"owner_poll_s": OWNER_POLL_S, **peers, **second},
        )  # fmt: skip
        server = RunningServer(build_executor(settings, SECRET), at, SECRET, 1.0)
        await server.start()
        async with Client.connect(at, token_for("alice")) as other:
            yield services, other, seen
        await server.stop()


async def eventually(condition):
    """What the condition answers, once it is anything."""
    for _ in range(3000):
        if answer := await condition():
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError("it never came")


async def begun(services, client):
    """Wait until the run's first turn has begun."""

    async def has_turn():
        with contextlib.suppress(TurnwrightError):
            return (await client.get_run(services.project, "r")).run.turn

    await eventually(has_turn)


class Watcher:
    """A client's watch, read in the background up to the end of a loop, heartbeats left out."""

    def __init__(self, client, project: str, after=None):
        self.events = []
        self._reading = asyncio.create_task(self._read(client.watch(project, "r", after)))

    async def _read(self, stream) -> None:
        async with contextlib.aclosing(stream) as events:
            async for event in events:
                if event.HasField("heartbeat"):
                    continue
                self.events.append(event)
                loop = loop_in(event)
                if loop and loop.status in LOOP_ENDED:
                    return

    async def hears(self, more_than: int = 3) -> None:
        """Wait until it has more deltas."""

        async def has_heard():
            return sum(event.WhichOneof("event") == "stream_delta" for event in self.events) > more_than

        await eventually(has_heard)

    async def ended(self):
        """All events up to the loop's end."""
        await asyncio.wait_for(self._reading, 60)
        return self.events


async def watched(client, project, run, kind="", after=None):
    """The events, heartbeats left out, up to the end of the run's loop, or to the first one of a kind."""
    events = []
    async with asyncio.timeout(60), contextlib.aclosing(client.watch(project, run, after)) as stream:
        async for event in stream:
            if event.HasField("heartbeat"):
                continue
            events.append(event)
            loop = loop_in(event)
            if event.WhichOneof("event") == kind or (not kind and loop and loop.status in LOOP_ENDED):
                return events
    raise AssertionError("the watch ended")
