"""Proposals: who waits for a decision, and how it is decided, also hunk by hunk."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeVar

from msgspec import Struct, field
from turnwright.proposals.v1 import proposal_service_pb2, proposal_service_pb2_grpc
from turnwright.types.v1 import proposal_pb2

from turnwright_client.retrying import RetryingPeer
from turnwright_client.watch import InboxChange, WatchPolicy, watch_inbox
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.patterns.patch import PatchHunk, hunks_of, without_hunks

T = TypeVar("T")
PendingProposal = proposal_service_pb2.PendingProposal


class ProposedHunk(Struct, frozen=True):
    """A hunk of what a proposal changes in a file."""

    path: str
    hunk: PatchHunk

    @property
    def text(self) -> str:
        """As it stands in the diff."""
        return self.hunk.text


class Accept(Struct, frozen=True):
    """The decision to accept a proposal, or some of it."""

    comment: str = ""
    """Why not all of it; the model reads this with the result."""
    hunks: Collection[int] | None = None
    """Which of `proposed_hunks`, by their index; None: all. Without any, the proposal is rejected."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """What to write in place of what was proposed, by path."""
    answer: str = ""
    """To a question."""


class Reject(Struct, frozen=True):
    """The decision to reject a proposal. Without a comment the loop ends; with one the model reads it, and goes on."""

    comment: str = ""


ProposalChoice = Accept | Reject | bool | str
"""True accepts, False rejects and ends the loop. A text answers a question; it rejects anything else, as a comment."""
OnProposal = Callable[[proposal_pb2.Proposal], Awaitable[ProposalChoice] | ProposalChoice]
"""Decides on a proposal."""


def proposed_hunks(proposal: proposal_pb2.Proposal) -> list[ProposedHunk]:
    """The hunks of its changes, file by file. Raises ValueError if a diff was cut because it is too long."""
    return [ProposedHunk(one.path, hunk) for one in proposal.files.changes for hunk in hunks_of(one.patch)]


def contents_without(
    answer: proposal_service_pb2.GetProposalResponse, left_out: Iterable[ProposedHunk]
) -> dict[str, str]:
    """The files of which hunks are left out, with the rest. Raises ValueError with the path that does not fit."""
    proposed = {one.path: one.content for one in answer.contents}
    left: dict[str, list[PatchHunk]] = {}
    for one in left_out:
        left.setdefault(one.path, []).append(one.hunk)
    contents: dict[str, str] = {}
    for path, hunks in left.items():
        text = without_hunks(proposed.get(path, ""), hunks)
        if text is None:
            raise ValueError(path)
        contents[path] = text
    return contents


class ProposalCalls:
    """Base of the client: rpcs of ProposalService. Every method raises TurnwrightError."""

    _peer: RetryingPeer
    _policy: WatchPolicy
    _proposals: proposal_service_pb2_grpc.ProposalServiceAsyncStub

    async def decide(self, project: str, run: str, proposal: proposal_pb2.Proposal, decision: ProposalChoice) -> None:
        """Decide on a proposal, unless somebody else was faster."""
        chosen = _chosen(proposal, decision)
        try:
            if isinstance(chosen, Accept) and chosen.hunks is not None:
                chosen = await self._of_hunks(project, run, proposal.path, chosen, set(chosen.hunks))
            if isinstance(chosen, Reject):
                await self.resolve(project, run, proposal.path, accept=False, comment=chosen.comment)
            else:
                await self.resolve(
                    project,
                    run,
                    proposal.path,
                    accept=True,
                    comment=chosen.comment,
                    contents=chosen.contents,
                    answer=chosen.answer,
                )
        except TurnwrightError as error:
            if error.reason is not Reason.NOT_PROPOSED:
                raise

    async def _of_hunks(self, project: str, run: str, path: str, accept: Accept, chosen: set[int]) -> Accept | Reject:
        if not chosen:
            return Reject(accept.comment)
        answer = await self.get_proposal(project, run, path)
        try:
            hunks = proposed_hunks(answer.proposal)
            contents = contents_without(answer, (hunk for index, hunk in enumerate(hunks) if index not in chosen))
        except ValueError as error:
            message = f"The diff of {path} cannot be accepted by hunks ({error}): give the `contents` in their place."
            raise fault(Reason.INVALID_FIELD, message, field="hunks") from None
        if not chosen <= set(range(len(hunks))):
            known = f"hunks 0 to {len(hunks) - 1}"
            message = f"There are {known}, and {sorted(chosen)} were chosen: use indexes of `proposed_hunks`."
            raise fault(Reason.INVALID_FIELD, message, field="hunks")
        return Accept(accept.comment, contents={**contents, **accept.contents})

    async def resolve(
        self,
        project: str,
        run: str,
        path: str,
        *,
        accept: bool,
        comment: str = "",
        contents: Mapping[str, str] | None = None,
        answer: str = "",
        client_runs: bool = False,
        request_id: str = "",
    ) -> proposal_service_pb2.ResolveProposalResponse:
        """Decide on a proposal. A rejection without a comment ends the loop; with a comment the model reads it.

        An acceptance may replace the proposed `contents`, by path, with a `comment` why, or carry the `answer` to a
        question. With `client_runs` the caller runs the proposed command itself and fills its channels (append_stream,
        end_stream). If somebody else was faster, raises NOT_PROPOSED with what was decided and by
        whom.
        """
        request = proposal_service_pb2.ResolveProposalRequest(
            project=project, run=run, path=path, request_id=request_id
        )
        if accept:
            request.accept.answer, request.accept.client_runs = answer, client_runs
            request.accept.comment = comment
            for edited, text in (contents or {}).items():
                request.accept.contents.add(path=edited, content=text)
            request.accept.SetInParent()
        else:
            request.reject.comment = comment
            request.reject.SetInParent()
        return await self._peer.call(self._proposals.ResolveProposal, request)

    async def get_proposal(self, project: str, run: str, path: str) -> proposal_service_pb2.GetProposalResponse:
        """A proposal with everything that it would write. Raises NOT_PROPOSED if it does not wait for a decision."""
        request = proposal_service_pb2.GetProposalRequest(project=project, run=run, path=path)
        return await self._peer.call(self._proposals.GetProposal, request)

    def list_proposals(self, project: str = "", run: str = "") -> AsyncIterator[PendingProposal]:
        """Proposals that wait for a decision, in a run, in a project or in all; the longest waiting first."""
        request = proposal_service_pb2.ListProposalsRequest(project=project, run=run)
        return self._peer.items(self._proposals.ListProposals, request, lambda page: page.proposals)

    def watch_proposals(self, project: str = "") -> AsyncGenerator[InboxChange, None]:
        """Stream the proposals that wait for a decision, then changes. Reconnects by itself.

        After a reconnect all waiting proposals are sent again, up to the message with `complete`: those missing by then
        have been decided. If you stop before it ends, close it (`contextlib.aclosing`).
        """
        request = proposal_service_pb2.WatchProposalsRequest(project=project)
        return watch_inbox(partial(self._peer.stream, self._proposals.WatchProposals, request, None), self._policy)


def _chosen(proposal: proposal_pb2.Proposal, decision: ProposalChoice) -> Accept | Reject:
    """The decision, where `OnProposal` has given a short form."""
    if isinstance(decision, str):
        return Accept(answer=decision) if proposal.HasField("question") else Reject(decision)
    if isinstance(decision, bool):
        return Accept() if decision else Reject()
    return decision


async def value_of(found: Awaitable[T] | T) -> T:
    """What a function gave that may be async."""
    return await found if inspect.isawaitable(found) else found
