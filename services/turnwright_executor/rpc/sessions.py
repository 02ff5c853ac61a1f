"""What the executor adds to RunService, ProposalService and SessionService: checks, and a notice to the run's worker.

A decision is stored first; then the run's worker is notified. This needs no owner: the store knows what is pending, and
the next owner finds the decision in the ledger.
Source: architecture 7; rows RU013, RU040, RU232, RU244, RU249-RU255, RC01-RC12; decisions C14, C20.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from msgspec import Struct
from turnwright.proposals.v1 import proposal_service_pb2
from turnwright.runs.v1 import watch_runs_pb2 as watch_pb
from turnwright.sessions.v1 import session_service_pb2 as pb
from turnwright.types.v1 import session_command_pb2
from turnwright_values.types import ClientToolEffect, CommandEffect, FileEffect, QuestionEffect, State

from turnwright_core import __version__
from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import cursor_from_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.amending import check_contents
from turnwright_executor.domain.effects import CallEffect, Effect
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.models import CheckVendor
from turnwright_executor.rpc.forwarding import CheckSeen
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.watching.run_fold import FreshRun
from turnwright_executor.wire.command_records import effect_in
from turnwright_kit.peer import Around, StreamHandler, UnaryHandler


async def waiting_effect(ledger: Ledger, address: RunAddress, path: str) -> Effect | None:
    """The effect to be accepted; None if the store will refuse the decision, with the reason."""
    found = await ledger.get_entries(address, [path])
    return effect_in(found[0].record) if found and found[0].state is State.PROPOSED else None


def check_acceptance(effect: Effect, accept: proposal_service_pb2.Accept) -> None:
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


class ClientCommands(Struct, frozen=True):
    """What clients do with runs."""

    ledger: Ledger
    hubs: Hubs
    scheduler: Scheduler
    check_vendor: CheckVendor
    check_seen: CheckSeen
    to_owner: Around
    """The call reaches the owner of the run, if that is another executor."""

    def around(self) -> Mapping[str, Around]:
        """Handlers by method."""
        return {
            "CreateRun": lambda _, inner: partial(self._configured, inner, lambda request: request.settings.model),
            "ConfigureRun": lambda _, inner: partial(self._configured, inner, lambda request: request.patch.model),
            "SetModel": lambda _, inner: partial(
                self._configured, inner, lambda request: request.model.vendor_model, field="model.vendor_model"
            ),
            "InjectMessage": lambda _, inner: partial(self.hubs.answer, inner),
            "AbortRun": lambda method, inner: self.to_owner(method, partial(self._aborted, inner)),
            "WatchRuns": lambda _, inner: partial(self._greeted, inner),
            "ResolveProposal": lambda method, inner: self.to_owner(method, partial(self._resolve, inner)),
            "SubmitCommand": lambda _, inner: partial(self._submit, inner),
        }

    async def _configured(
        self,
        inner: UnaryHandler,
        model_of: Callable[[Any], str],
        request: Any,
        context: Any,
        field: str = "settings.model",
    ) -> Any:
        await self.check_vendor(model_of(request), field)
        return await inner(request, context)

    async def _aborted(self, inner: UnaryHandler, request: Any, context: Any) -> Any:
        answer = await self.hubs.answer(inner, request, context)
        if request.loop in (0, answer.run.loop.sequence):
            self.scheduler.abort(RunAddress(request.project, request.run), answer.run.loop.sequence)
        return answer

    async def _greeted(
        self, inner: StreamHandler, request: Any, context: Any
    ) -> AsyncGenerator[watch_pb.WatchRunsResponse]:
        greeting = watch_pb.WatchRunsResponse(hello=watch_pb.Hello(version=__version__))
        greeting.time.GetCurrentTime()
        yield greeting
        async with aclosing(inner(request, context)) as messages:
            async for message in messages:
                yield message

    async def _resolve(
        self, forward: UnaryHandler, request: proposal_service_pb2.ResolveProposalRequest, context: Any
    ) -> proposal_service_pb2.ResolveProposalResponse:
        """Decide on a proposal, so that its loop continues."""
        address = RunAddress(request.project, request.run)
        if request.HasField("accept"):
            await self.check_seen(address)
            if effect := await waiting_effect(self.ledger, address, request.path):
                check_acceptance(effect, request.accept)
        answer: proposal_service_pb2.ResolveProposalResponse = await self.hubs.answer(forward, request, context)
        self.scheduler.kick(address)
        return answer

    async def _submit(
        self, forward: UnaryHandler, request: pb.SubmitCommandRequest, context: Any
    ) -> pb.SubmitCommandResponse:
        address, command = RunAddress(request.project, request.run), request.command
        await self._check(address, command)
        if command.HasField("branch_from_chat") or (
            command.HasField("user_message") and not (request.run and await self._exists(address))
        ):
            return await self._opened(await forward(request, context))
        answer: pb.SubmitCommandResponse = await self.hubs.answer(forward, request, context)
        if command.HasField("abort"):
            self.scheduler.abort(address, answer.run.loop.sequence)
        else:
            self.scheduler.kick(address)
        return answer

    async def _check(self, address: RunAddress, command: session_command_pb2.SessionCommand) -> None:
        """Refuse what only an executor can tell: vendors that there are not, and what does not fit an effect."""
        messages = (command.user_message, command.retry_from_index.message)
        for model in {command.set_params.patch.model, *(message.settings.model for message in messages)}:
            await self.check_vendor(model, "settings.model")
        approved = command.approve_tools
        if len(approved.calls) == 1 and approved.calls[0].startswith("log://"):
            await self.check_seen(address)
            effect = await waiting_effect(self.ledger, address, approved.calls[0])
            # What a client executes is refused by the state of the run.
            if effect and not isinstance(effect, ClientToolEffect):
                accept = proposal_service_pb2.Accept(contents=approved.contents, answer=approved.answer)
                check_acceptance(effect, accept)

    async def _exists(self, address: RunAddress) -> bool:
        if self.hubs.has(address):
            return True
        try:
            await self.ledger.get_run(address)
        except TurnwrightError as error:
            if error.reason is Reason.RUN_NOT_FOUND:
                return False
            raise
        return True

    async def _opened(self, answer: pb.SubmitCommandResponse) -> pb.SubmitCommandResponse:
        address = RunAddress(answer.run.project, answer.run.run)
        is_fresh = answer.created and not answer.duplicate and not answer.run.HasField("forked_from")
        fresh = FreshRun(answer.run, cursor_from_pb(answer.cursor)) if is_fresh else None
        try:
            async with self.hubs.hold(address, fresh=fresh) as hub:
                answer.event_cursor.CopyFrom(hub.before_call().cursor(answer.cursor))
        finally:
            # The command is stored, so it is carried out even if the caller has gone.
            self.scheduler.kick(address)
        return answer
