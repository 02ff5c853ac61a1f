"""What servicers that call the store share: which runs are there for a caller, and open watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from turnwright.runs.v1 import run_service_pb2_grpc
from turnwright.runs.v1.run_service_pb2 import GetRunRequest
from turnwright_values.types import Right

from turnwright_core.errors import Reason, fault, run_not_found
from turnwright_executor.domain.addresses import RunAddress
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.policy import Policy
from turnwright_kit.peer import Peer
from turnwright_kit.stream_rights import also_needs

CheckSeen = Callable[[RunAddress], Awaitable[None]]
"""Raises RUN_NOT_FOUND for a run that is not there for the caller."""


async def check_seen(store: Peer, address: RunAddress) -> None:
    """Ask the store whether a run is there for the caller: it may be private. Raises RUN_NOT_FOUND.

    A stream of a private run ends as soon as the run is there for its caller no longer.
    """
    if (caller := current_caller()).is_trusted:
        return
    runs: run_service_pb2_grpc.RunServiceAsyncStub = run_service_pb2_grpc.RunServiceStub(store.channel)
    request = GetRunRequest(project=address.project, run=address.run, run_only=True)
    found = await store.call(runs.GetRun, request, caller=caller)
    is_anothers = found.HasField("private_to") and found.private_to != caller.name

    def check(policy: Policy, caller: Caller) -> None:
        if is_anothers and not policy.has(caller, Right.ADMIN, address.project):
            raise run_not_found(address.project, address.run)

    also_needs(check)


T = TypeVar("T")


class OpenWatches:
    """The open watches of this executor, to end them together. `heartbeat_s`: the interval of heartbeats in seconds."""

    def __init__(self, heartbeat_s: float) -> None:
        self.heartbeat_s = heartbeat_s
        self._closing = asyncio.Event()

    def close(self) -> None:
        self._closing.set()

    async def follow(self, source: AsyncGenerator[T], silence_s: float | None = None) -> AsyncGenerator[T | None]:
        """The items, and None after each `silence_s` seconds without one. Raises DRAINING.

        The caller closes the source.
        """
        coming: asyncio.Future[T | None] | None = None
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(source, None))
                await asyncio.wait((coming, closing), timeout=silence_s, return_when=asyncio.FIRST_COMPLETED)
                if closing.done():
                    raise fault(Reason.DRAINING, "The executor is shutting down: call the watch again.")
                if not coming.done():
                    yield None
                    continue
                if (item := coming.result()) is None:
                    return
                coming = None
                yield item
        finally:
            waiting = [task for task in (coming, closing) if task]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
