"""What the executor adds to SessionService: checks of vendors and effects, a notice to the run's worker, its events.

Source: architecture 7; rows RC01-RC12.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct
from turnwright.proposals.v1 import proposal_service_pb2
from turnwright.sessions.v1 import session_service_pb2 as pb
from turnwright.types.v1 import session_command_pb2
from turnwright_values.types import ClientToolEffect

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import cursor_from_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.models import CheckVendor
from turnwright_executor.rpc.forwarding import CheckSeen
from turnwright_executor.rpc.proposals import check_acceptance, waiting_effect
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.watching.run_fold import FreshRun
from turnwright_kit.peer import Around, UnaryHandler


class ClientCommands(Struct, frozen=True):
    """The commands of clients."""

    ledger: Ledger
    hubs: Hubs
    scheduler: Scheduler
    check_vendor: CheckVendor
    check_seen: CheckSeen

    def around(self) -> Mapping[str, Around]:
        """Handlers by method."""
        return {"SubmitCommand": lambda _, forward: partial(self._submit, forward)}

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
