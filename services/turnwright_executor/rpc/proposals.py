"""What the executor adds to ProposalService: checks of decisions, and a notice to the run's worker.

A decision is stored first; then the run's worker is notified. This needs no owner: the store knows what is pending, and
the next owner finds the decision in the ledger.
Source: rows RU013, RU040, RU232, RU244, RU249-RU255; decisions C14, C20.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from turnwright.proposals.v1 import proposal_service_pb2 as pb
from turnwright_values.types import ClientToolEffect, CommandEffect, FileEffect, QuestionEffect, State

from turnwright_core.checks import invalid
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.amending import check_contents
from turnwright_executor.domain.effects import CallEffect, Effect
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.rpc.forwarding import CheckSeen
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.wire.command_records import effect_in
from turnwright_kit.peer import Around, UnaryHandler


class Inbox(Struct, frozen=True):
    """Proposals for clients."""

    ledger: Ledger
    hubs: Hubs
    scheduler: Scheduler
    to_owner: Around
    check_seen: CheckSeen

    def around(self) -> Mapping[str, Around]:
        """Handlers by method."""
        return {
            "ResolveProposal": lambda method, forward: self.to_owner(method, partial(self._resolve, forward)),
        }

    async def _resolve(
        self, forward: UnaryHandler, request: pb.ResolveProposalRequest, context: Any
    ) -> pb.ResolveProposalResponse:
        """Decide on a proposal, so that its loop continues."""
        address = RunAddress(request.project, request.run)
        if request.HasField("accept"):
            await self.check_seen(address)
            if effect := await waiting_effect(self.ledger, address, request.path):
                check_acceptance(effect, request.accept)
        answer: pb.ResolveProposalResponse = await self.hubs.answer(forward, request, context)
        self.scheduler.kick(address)
        return answer


async def waiting_effect(ledger: Ledger, address: RunAddress, path: str) -> Effect | None:
    """The effect to be accepted; None if the store will refuse the decision, with the reason."""
    found = await ledger.get_entries(address, [path])
    return effect_in(found[0].record) if found and found[0].state is State.PROPOSED else None


def check_acceptance(effect: Effect, accept: pb.Accept) -> None:
    """Raises InvalidError if the decision does not fit the proposal."""
    is_question = isinstance(effect, QuestionEffect)
    if is_question and not accept.answer.strip():
        raise invalid("answer", "The proposal is a question: accept it with `answer`, or reject it.")
    if accept.answer and not is_question:
        raise invalid("answer", "The proposal is not a question: accept it without an answer.")
    is_of_server = isinstance(effect, CallEffect) and "server" in effect.data
    if accept.comment and not (is_of_server or isinstance(effect, FileEffect)):
        raise invalid("comment", "The proposal changes no files, and no server reads it: accept it without a comment.")
    if accept.client_runs and not isinstance(effect, CommandEffect):
        raise invalid("client_runs", "The proposal is not a command: only a command can run at the client.")
    if isinstance(effect, ClientToolEffect):
        raise invalid("path", "A client executes this tool: submit its result with ide_tool_result.")
    check_contents(effect, {one.path: one.content for one in accept.contents})
