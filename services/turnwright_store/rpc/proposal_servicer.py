"""Rpcs of ProposalService."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection
from turnwright.proposals.v1 import proposal_service_pb2 as pb
from turnwright.proposals.v1 import proposal_service_pb2_grpc
from turnwright_values.types import Right

from turnwright_core.checks import check_bytes, invalid
from turnwright_core.limits import COMMENT_BYTES_MAX
from turnwright_core.wire import entries as entry_wire
from turnwright_core.wire import runs as wire
from turnwright_core.wire.proposals import decision_to_pb, proposal_to_pb, proposed_contents
from turnwright_core.wire.times import time_to_pb
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_store.app import proposals
from turnwright_store.app.inbox import (
    ClosedProposal,
    InboxMessage,
    InboxWatch,
    WaitingProposal,
    list_proposals,
    watch_inbox,
)
from turnwright_store.app.proposals import Resolution
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, query, run_locks, watch


def resolution_of(request: pb.ResolveProposalRequest) -> Resolution:
    """The decision that a request asks for. Raises InvalidError."""
    accept = request.accept
    match request.WhichOneof("decision"):
        case "accept":
            check_bytes("answer", accept.answer, COMMENT_BYTES_MAX)
            contents = tuple((one.path, one.content) for one in accept.contents)
            return Resolution(True, accept.answer or accept.comment, contents, accept.client_runs)
        case "reject":
            return Resolution(False, request.reject.comment)
        case _:
            raise invalid("decision", "Set `accept` or `reject`.")


class ProposalServicer(Calls, proposal_service_pb2_grpc.ProposalServiceServicer):
    """Serves turnwright.proposals.v1.ProposalService."""

    @query
    def GetProposal(self, request: pb.GetProposalRequest, connection: Connection) -> Fields:
        record = proposals.get_proposal(connection, address_of(request), request.path)
        return {"proposal": proposal_to_pb(record, whole=True), "contents": proposed_contents(record.record)}

    @query
    def ListProposals(self, request: pb.ListProposalsRequest, connection: Connection) -> Fields:
        names = None if request.project else self._shown_to(current_caller())
        found, token = list_proposals(
            connection, names, request.project, request.run, request.page_size, request.page_token
        )
        return {"proposals": map(_pending_to_pb, found), "next_page_token": token}

    def _inbox_to_pb(self, change: InboxMessage) -> pb.WatchProposalsResponse:
        return pb.WatchProposalsResponse(
            pending=map(_pending_to_pb, change.pending),
            decided=map(_gone_to_pb, change.decided),
            complete=change.complete,
            send_time=time_to_pb(self._service.clock_ms()),
        )

    @watch(_inbox_to_pb)
    async def WatchProposals(self, request: pb.WatchProposalsRequest) -> InboxWatch:
        policy, shown = self._service.policy, partial(self._shown_to, current_caller())
        return await watch_inbox(self._database, request.project, shown, policy)

    def _shown_to(self, caller: Caller) -> Sequence[str] | None:
        """The projects whose proposals a caller may see; None: all."""
        return self._service.policy.projects_with(caller, Right.READ)

    @mutation(locks=run_locks)
    def ResolveProposal(self, request: pb.ResolveProposalRequest, tx: Transaction, caller: Caller) -> Fields:
        resolution = resolution_of(request)
        tx.detail.update(path=request.path, decision=request.WhichOneof("decision"))
        if resolution.contents:
            tx.detail["edited"] = [path for path, _ in resolution.contents]
        done = proposals.resolve_proposal(tx, self._rules, caller, address_of(request), request.path, resolution)
        return {
            "run": wire.run_to_pb(done.run),
            "entry": entry_wire.entry_to_pb(done.entry),
            "cursor": entry_wire.cursor_to_pb(done.cursor),
        }


def _pending_to_pb(one: WaitingProposal) -> pb.PendingProposal:
    return pb.PendingProposal(
        project=one.project,
        run=one.run,
        proposal=proposal_to_pb(one.entry),
        propose_time=time_to_pb(one.since_ms),
    )


def _gone_to_pb(one: ClosedProposal) -> pb.DecidedProposal:
    return pb.DecidedProposal(project=one.project, run=one.run, decision=decision_to_pb(one.path, one.entry))
