"""Rpcs that read proposals: one of a run, and lists of those that wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from turnwright.executor.v1 import proposal_pb2
from turnwright.store.v1 import proposal_pb2 as rows_pb2
from turnwright.types.v1 import proposal_pb2 as types_pb2

from turnwright_core.entries import State
from turnwright_core.errors import Reason, fault
from turnwright_core.wire.entries import entry_from_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.amending import contents_in
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.rpc.forwarding import Forwarding, copy_fields
from turnwright_executor.watching.proposals import proposal_of
from turnwright_executor.wire.command_records import effect_in

Shown = Callable[[Iterable[proposal_pb2.InboxItem]], Awaitable[list[proposal_pb2.InboxItem]]]
"""What of a list the caller may see."""


class ProposalReadRpcs(Forwarding):
    """GetProposal and ListProposals."""

    _ledger: Ledger
    _shown: Shown

    async def GetProposal(
        self, request: proposal_pb2.GetProposalRequest, context: Any
    ) -> proposal_pb2.GetProposalResponse:
        found = await self._ledger.get_entries(RunAddress(request.project, request.run), [request.path])
        if not found:
            message = f"The run {request.run} has no entry {request.path}."
            raise fault(Reason.ENTRY_NOT_FOUND, message, path=request.path)
        record = found[0]
        if record.state is not State.PROPOSED:
            state = record.state.name.lower()
            message = f"{request.path} is {state}: it does not wait for a decision."
            raise fault(Reason.NOT_PROPOSED, message, path=request.path, state=state)
        effect = effect_in(record.record)
        contents = contents_in(effect) if effect else {}
        return proposal_pb2.GetProposalResponse(
            proposal=proposal_of(record, whole=True),
            contents=[types_pb2.EditedContent(path=path, content=text) for path, text in contents.items()],
        )

    async def ListProposals(
        self, request: proposal_pb2.ListProposalsRequest, context: Any
    ) -> proposal_pb2.ListProposalsResponse:
        page = await self.store.call(self.rows.ListProposals, copy_fields(request, rows_pb2.ListProposalsRequest))
        items = await self._shown(items_of(page.proposals))
        return proposal_pb2.ListProposalsResponse(items=items, next_page_token=page.next_page_token)


def items_of(found: Iterable[rows_pb2.PendingProposal]) -> list[proposal_pb2.InboxItem]:
    """The proposals that are for people: what a client executes is not."""
    items = [copy_fields(one, proposal_pb2.InboxItem, proposal=proposal_of(entry_from_pb(one.entry))) for one in found]
    return [item for item in items if not item.proposal.HasField("client_tool")]
