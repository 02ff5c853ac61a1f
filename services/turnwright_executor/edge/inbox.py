"""The store over gRPC: what waits for a decision, and decisions. They are made in the name of the client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from turnwright.executor.v1 import proposal_pb2
from turnwright.store.v1 import proposal_pb2 as store_pb2
from turnwright.store.v1 import queue_pb2, store_service_pb2_grpc
from turnwright.types.v1 import proposal_pb2 as types_pb2
from turnwright.types.v1 import run_pb2

from turnwright_core.kit.auth import Caller
from turnwright_core.kit.peer import Peer
from turnwright_core.wire.entries import entry_from_pb
from turnwright_executor.ports.address import RunAddress
from turnwright_executor.ports.inbox import Ruling
from turnwright_executor.watching.proposals import proposal_of


class StoreInbox:
    """Implements ports.Inbox."""

    def __init__(self, peer: Peer) -> None:
        """Speak through this peer."""
        self._peer = peer
        self._stub: store_service_pb2_grpc.StoreServiceAsyncStub = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def resolve(
        self, address: RunAddress, path: str, ruling: Ruling, request_id: str, caller: Caller
    ) -> run_pb2.Run:
        """Record a decision."""
        request = queue_pb2.ResolveProposalRequest(
            project=address.project,
            run=address.run,
            path=path,
            decision=queue_pb2.DECISION_ACCEPT if ruling.accept else queue_pb2.DECISION_REJECT,
            comment=ruling.comment,
            contents=[types_pb2.EditedContent(path=path, content=text) for path, text in ruling.contents.items()],
            client_runs=ruling.client_runs,
            request_id=request_id,
        )
        return (await self._peer.call(self._stub.ResolveProposal, request, caller=caller)).run

    async def list(self, request: proposal_pb2.ListProposalsRequest) -> proposal_pb2.ListProposalsResponse:
        """A page of what waits."""
        wanted = store_pb2.ListProposalsRequest(
            project=request.project, run=request.run, page_size=request.page_size, page_token=request.page_token
        )
        page = await self._peer.call(self._stub.ListProposals, wanted)
        return proposal_pb2.ListProposalsResponse(items=_items(page.proposals), next_page_token=page.next_page_token)

    async def watch(
        self, request: proposal_pb2.WatchProposalsRequest
    ) -> AsyncGenerator[proposal_pb2.WatchProposalsResponse, None]:
        """What waits, and what waits no more, until the caller ends it."""
        wanted = store_pb2.WatchProposalsRequest(project=request.project)
        # No deadline: it lives as long as somebody looks; keepalive bounds the silence.
        async with self._peer.stream(self._stub.WatchProposals, wanted, None) as changes:
            async for change in changes:
                yield _told(change)


def _told(change: store_pb2.WatchProposalsResponse) -> proposal_pb2.WatchProposalsResponse:
    return proposal_pb2.WatchProposalsResponse(
        pending=_items(change.pending),
        decided=[
            proposal_pb2.DecidedItem(project=one.project, run=one.run, decision=one.decision) for one in change.decided
        ],
        complete=change.complete,
        send_time=change.send_time,
    )


def _items(found: Iterable[store_pb2.PendingProposal]) -> list[proposal_pb2.InboxItem]:
    return [
        proposal_pb2.InboxItem(
            project=one.project,
            run=one.run,
            proposal=proposal_of(entry_from_pb(one.entry)),
            propose_time=one.propose_time,
        )
        for one in found
    ]
