"""Decisions of clients on proposals, and the inbox in which they find them.

A decision is durable first; then whoever works on the run is told. Nothing of it needs the run's owner: the store
knows what waits, and the next owner finds the decision in the ledger.
Source: rows RU013, RU040, RU232, RU244, RU249-RU255; decisions C14, C20.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import Struct, field
from turnwright.executor.v1 import executor_service_pb2 as pb
from turnwright.executor.v1 import proposal_pb2
from turnwright.types.v1 import proposal_pb2 as types_pb2

from turnwright_core.entries import State
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.kit.auth import Caller
from turnwright_core.limits import COMMENT_BYTES_MAX
from turnwright_executor.domain.amending import check_contents, contents_in
from turnwright_executor.domain.effects import CommandEffect, Effect, QuestionEffect
from turnwright_executor.ports.address import RunAddress
from turnwright_executor.ports.inbox import Inbox, Ruling
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.watching.proposals import proposal_of
from turnwright_executor.wire.command_records import effect_in


class Decisions(Struct, frozen=True):
    """What clients do with proposals. Every method raises TurnwrightError."""

    inbox: Inbox
    ledger: Ledger
    hubs: Hubs
    scheduler: Scheduler
    _draining: asyncio.Event = field(default_factory=asyncio.Event)

    def close(self) -> None:
        self._draining.set()

    async def resolve(self, request: pb.ResolveRequest, caller: Caller) -> pb.ResolveResponse:
        """Decide on a proposal; its loop goes on."""
        ruling = _ruling_of(request)
        address = RunAddress(request.project, request.run)
        if ruling.accept and (effect := await self._waiting_effect(address, request.path)):
            _check_acceptance(effect, ruling)
        async with self.hubs.hold(address) as hub:
            cursor = hub.cursor()
            run = await self.inbox.resolve(address, request.path, ruling, request.request_id, caller)
        self.scheduler.kick(address)
        return pb.ResolveResponse(run=run, cursor=cursor)

    async def _waiting_effect(self, address: RunAddress, path: str) -> Effect | None:
        """What would be accepted; None where the store will say why nothing can be."""
        found = await self.ledger.get_entries(address, [path])
        return effect_in(found[0].record) if found and found[0].state is State.PROPOSED else None

    async def get(self, request: proposal_pb2.GetProposalRequest) -> proposal_pb2.GetProposalResponse:
        """A proposal with all that it would write."""
        found = await self.ledger.get_entries(RunAddress(request.project, request.run), [request.path])
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

    async def list(self, request: proposal_pb2.ListProposalsRequest) -> proposal_pb2.ListProposalsResponse:
        return await self.inbox.list(request)

    async def watch(
        self, request: proposal_pb2.WatchProposalsRequest
    ) -> AsyncGenerator[proposal_pb2.WatchProposalsResponse, None]:
        draining: asyncio.Future[Any] = asyncio.ensure_future(self._draining.wait())
        coming: asyncio.Future[Any] = draining
        async with contextlib.aclosing(self.inbox.watch(request)) as changes:
            try:
                while True:
                    coming = asyncio.ensure_future(anext(changes, None))
                    await asyncio.wait({draining, coming}, return_when=asyncio.FIRST_COMPLETED)
                    if draining.done():
                        raise fault(Reason.DRAINING, "The executor is shutting down: watch again.")
                    if (change := coming.result()) is None:
                        return
                    yield change
            finally:
                for task in (draining, coming):
                    task.cancel()
                await asyncio.gather(draining, coming, return_exceptions=True)


def _ruling_of(request: pb.ResolveRequest) -> Ruling:
    """The decision that a request asks for. Raises InvalidError."""
    match request.WhichOneof("decision"):
        case "accept":
            _check_bytes("answer", request.accept.answer)
            contents = {one.path: one.content for one in request.accept.contents}
            if len(contents) < len(request.accept.contents):
                raise _invalid("contents", "Give one content for each path.")
            accepted = request.accept
            return Ruling(True, accepted.answer, contents, accepted.client_runs)
        case "reject":
            _check_bytes("comment", request.reject.comment)
            return Ruling(accept=False, comment=request.reject.comment)
        case _:
            raise _invalid("decision", "Say accept or reject.")


def _check_acceptance(effect: Effect, ruling: Ruling) -> None:
    """Raises InvalidError for what does not fit the proposal."""
    is_question = isinstance(effect, QuestionEffect)
    if is_question and not ruling.comment.strip():
        raise _invalid("answer", "The proposal is a question: accept it with an answer, or reject it.")
    if ruling.comment and not is_question:
        raise _invalid("answer", "The proposal is not a question: accept it without an answer.")
    if ruling.client_runs and not isinstance(effect, CommandEffect):
        raise _invalid("client_runs", "The proposal is not a command: only a command can run at the client.")
    check_contents(effect, ruling.contents)


def _invalid(field: str, message: str) -> TurnwrightError:
    return fault(Reason.INVALID_FIELD, message, field=field)


def _check_bytes(field: str, text: str) -> None:
    actual = len(text.encode())
    if actual > COMMENT_BYTES_MAX:
        raise fault(
            Reason.LIMIT_EXCEEDED,
            f"The {field} has {actual} bytes; at most {COMMENT_BYTES_MAX} are allowed.",
            field=field,
            limit=COMMENT_BYTES_MAX,
            actual=actual,
            unit="bytes",
        )
