"""What servicers that call the store share: its peer, and which runs are there for a caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from turnwright.runs.v1 import run_service_pb2_grpc
from turnwright.runs.v1.run_service_pb2 import GetRunRequest
from turnwright.store.v1 import store_service_pb2_grpc
from turnwright_values.types import Right

from turnwright_core.errors import run_not_found
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.vendors import CheckVendor
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.policy import Policy
from turnwright_kit.peer import Peer
from turnwright_kit.stream_rights import also_needs

CheckSeen = Callable[[RunAddress], Awaitable[None]]
"""Raises RUN_NOT_FOUND for a run that is not there for the caller."""


class Forwarding:
    """Base class of the servicers: the peer of the store, and the list of vendors."""

    store: Peer
    rows: store_service_pb2_grpc.StoreServiceAsyncStub
    check_vendor: CheckVendor

    async def check_seen(self, request: Any) -> None:
        """Refuse what is done here with a run that is not there for the caller. Raises RUN_NOT_FOUND."""
        await check_seen(self.store, RunAddress(request.project, request.run))


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
