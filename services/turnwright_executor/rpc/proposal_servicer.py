"""Decisions of clients on proposals, and the inbox of pending ones.

A decision is stored first; then the run's worker is notified. This needs no owner: the store knows what is pending, and
the next owner finds the decision in the ledger.
Source: rows RU013, RU040, RU232, RU244, RU249-RU255; decisions C14, C20.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from turnwright.executor.v1 import proposal_pb2
from turnwright.store.v1 import proposal_pb2 as rows_pb2
from turnwright.store.v1 import queue_pb2

from turnwright_core.checks import check_bytes, invalid
from turnwright_core.entries import State
from turnwright_core.kit.auth import current_caller
from turnwright_core.limits import COMMENT_BYTES_MAX
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.amending import check_contents
from turnwright_executor.domain.effects import ClientToolEffect, CommandEffect, Effect, FileEffect, QuestionEffect
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.rpc.forwarding import copy_fields
from turnwright_executor.rpc.proposal_reads_servicer import ProposalReadRpcs, items_of
from turnwright_executor.rpc.watches import OpenWatches
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.wire.command_records import effect_in


class ExecutorProposalRpcs(ProposalReadRpcs):
    """Resolve, and the rpcs of proposal.proto."""

    _hubs: Hubs
    _scheduler: Scheduler
    _watches: OpenWatches

    async def Resolve(self, request: proposal_pb2.ResolveRequest, context: Any) -> proposal_pb2.ResolveResponse:
        """Decide on a proposal, so that its loop continues."""
        decision = _decision(request)
        address = RunAddress(request.project, request.run)
        if request.HasField("accept") and (effect := await waiting_effect(self._ledger, address, request.path)):
            check_acceptance(effect, request.accept)
        async with self._hubs.hold(address) as hub:
            before = hub.before_call()
            answer = await self.store.call(self.rows.ResolveProposal, decision, caller=current_caller())
        self._scheduler.kick(address)
        return proposal_pb2.ResolveResponse(run=answer.run, cursor=before.cursor(answer.cursor))

    async def WatchProposals(
        self, request: proposal_pb2.WatchProposalsRequest, context: Any
    ) -> AsyncIterator[proposal_pb2.WatchProposalsResponse]:
        """Stream the pending proposals. Raises DRAINING."""
        async with (
            contextlib.aclosing(self._changes(request)) as changes,
            contextlib.aclosing(self._watches.follow(changes)) as following,
        ):
            async for change in following:
                if change:
                    yield change

    async def _changes(
        self, request: proposal_pb2.WatchProposalsRequest
    ) -> AsyncGenerator[proposal_pb2.WatchProposalsResponse]:
        wanted = copy_fields(request, rows_pb2.WatchProposalsRequest)
        # No deadline: it lives as long as somebody looks; keepalive bounds the silence.
        async with self.store.stream(self.rows.WatchProposals, wanted, None) as changes:
            sent: set[tuple[str, str, str]] = set()
            async for change in changes:
                pending = await self._shown(items_of(change.pending))
                sent |= {(one.project, one.run, one.proposal.path) for one in pending}
                decided = [copy_fields(one, proposal_pb2.DecidedItem) for one in change.decided]
                known = [one for one in decided if (one.project, one.run, one.decision.path) in sent]
                sent -= {(one.project, one.run, one.decision.path) for one in known}
                yield copy_fields(change, proposal_pb2.WatchProposalsResponse, pending=pending, decided=known)


def _decision(request: proposal_pb2.ResolveRequest) -> queue_pb2.ResolveProposalRequest:
    """The decision in the form in which the store records it. Raises InvalidError."""
    accept, reject = request.accept, request.reject
    match request.WhichOneof("decision"):
        case "accept":
            check_bytes("answer", accept.answer, COMMENT_BYTES_MAX)
            check_bytes("comment", accept.comment, COMMENT_BYTES_MAX)
            if len(_contents(accept)) < len(accept.contents):
                raise invalid("contents", "Give one content for each path.")
            return copy_fields(
                request,
                queue_pb2.ResolveProposalRequest,
                decision=queue_pb2.DECISION_ACCEPT,
                comment=accept.answer or accept.comment,
                contents=accept.contents,
                client_runs=accept.client_runs,
            )
        case "reject":
            check_bytes("comment", reject.comment, COMMENT_BYTES_MAX)
            rejected = queue_pb2.DECISION_REJECT
            return copy_fields(request, queue_pb2.ResolveProposalRequest, decision=rejected, comment=reject.comment)
        case _:
            raise invalid("decision", "Set `accept` or `reject`.")


async def waiting_effect(ledger: Ledger, address: RunAddress, path: str) -> Effect | None:
    """The effect to be accepted; None if the store will refuse the decision, with the reason."""
    found = await ledger.get_entries(address, [path])
    return effect_in(found[0].record) if found and found[0].state is State.PROPOSED else None


def _contents(accept: proposal_pb2.Accept) -> dict[str, str]:
    return {one.path: one.content for one in accept.contents}


def check_acceptance(effect: Effect, accept: proposal_pb2.Accept) -> None:
    """Raises InvalidError if the decision does not fit the proposal."""
    is_question = isinstance(effect, QuestionEffect)
    if is_question and not accept.answer.strip():
        raise invalid("answer", "The proposal is a question: accept it with `answer`, or reject it.")
    if accept.answer and not is_question:
        raise invalid("answer", "The proposal is not a question: accept it without an answer.")
    if accept.comment and not isinstance(effect, FileEffect):
        raise invalid("comment", "The proposal changes no files: accept it without a comment.")
    if accept.client_runs and not isinstance(effect, CommandEffect):
        raise invalid("client_runs", "The proposal is not a command: only a command can run at the client.")
    if isinstance(effect, ClientToolEffect):
        raise invalid("path", "A client executes this tool: submit its result with ide_tool_result.")
    check_contents(effect, _contents(accept))
