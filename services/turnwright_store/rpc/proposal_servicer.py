"""Decisions, and what waits for one."""

from __future__ import annotations

from turnwright.store.v1 import proposal_pb2, queue_pb2

from turnwright_core.checks import invalid
from turnwright_core.kit.auth import Caller
from turnwright_core.wire import entries as entry_wire
from turnwright_core.wire import runs as wire
from turnwright_core.wire.proposals import decision_to_pb
from turnwright_core.wire.times import time_to_pb
from turnwright_store.app import proposals
from turnwright_store.app.inbox import (
    ClosedProposal,
    InboxMessage,
    InboxWatch,
    PendingProposal,
    list_proposals,
    watch_inbox,
)
from turnwright_store.app.proposals import Resolution
from turnwright_store.ports import Connection, Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, query, run_locks, watch


def resolution_of(request: queue_pb2.ResolveProposalRequest) -> Resolution:
    """The decision that a request asks for. Raises InvalidError."""
    if request.decision not in (queue_pb2.DECISION_ACCEPT, queue_pb2.DECISION_REJECT):
        raise invalid("decision", "decision must be accept or reject.")
    contents = tuple((one.path, one.content) for one in request.contents)
    return Resolution(request.decision == queue_pb2.DECISION_ACCEPT, request.comment, contents, request.client_runs)


class ProposalRpcs(Calls):
    """Rpcs of proposal.proto, and ResolveProposal."""

    @mutation(locks=run_locks, inline=True)
    def ResolveProposal(self, request: queue_pb2.ResolveProposalRequest, tx: Transaction, caller: Caller) -> Fields:
        resolution = resolution_of(request)
        done = proposals.resolve_proposal(tx, self._rules, caller, address_of(request), request.path, resolution)
        return {
            "run": wire.run_to_pb(done.run),
            "entry": entry_wire.entry_to_pb(done.entry),
            "cursor": entry_wire.cursor_to_pb(done.cursor),
        }

    @query
    def ListProposals(self, request: proposal_pb2.ListProposalsRequest, connection: Connection) -> Fields:
        found, token = list_proposals(connection, request.project, request.run, request.page_size, request.page_token)
        return {"proposals": map(_pending_to_pb, found), "next_page_token": token}

    def _inbox_to_pb(self, change: InboxMessage) -> proposal_pb2.WatchProposalsResponse:
        return proposal_pb2.WatchProposalsResponse(
            pending=map(_pending_to_pb, change.pending),
            decided=map(_gone_to_pb, change.decided),
            complete=change.complete,
            send_time=time_to_pb(self._service.clock_ms()),
        )

    @watch(_inbox_to_pb)
    async def WatchProposals(self, request: proposal_pb2.WatchProposalsRequest) -> InboxWatch:
        return await watch_inbox(self._database, request.project)


def _pending_to_pb(one: PendingProposal) -> proposal_pb2.PendingProposal:
    return proposal_pb2.PendingProposal(
        project=one.project,
        run=one.run,
        entry=entry_wire.entry_to_pb(one.entry),
        propose_time=time_to_pb(one.since_ms),
    )


def _gone_to_pb(one: ClosedProposal) -> proposal_pb2.DecidedProposal:
    return proposal_pb2.DecidedProposal(project=one.project, run=one.run, decision=decision_to_pb(one.path, one.entry))
