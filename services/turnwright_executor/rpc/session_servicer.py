"""Commands of chats: one call of the store carries each out or queues it; then the run's worker is notified.

Source: architecture 7; rows RC01-RC12.
"""

from __future__ import annotations

from typing import Any

from turnwright.executor.v1 import proposal_pb2
from turnwright.executor.v1 import session_pb2 as pb
from turnwright.store.v1 import session_pb2 as rows_pb2
from turnwright.types.v1.cursor_pb2 import EventCursor

from turnwright_core.checks import check_chars, invalid
from turnwright_core.entries import Tier
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.kit.auth import current_caller
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_core.wire.entries import cursor_from_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.effects import ClientToolEffect
from turnwright_executor.rpc.forwarding import CallIdentity, Forward, check_floor
from turnwright_executor.rpc.proposal_servicer import ExecutorProposalRpcs, check_acceptance
from turnwright_executor.rpc.task_servicer import TaskRpcs
from turnwright_executor.watching.run_fold import FreshRun

Answer = rows_pb2.SubmitCommandResponse


class ExecutorSessionRpcs(TaskRpcs, ExecutorProposalRpcs):
    """Rpcs of session.proto."""

    ListCommands = Forward(identity=CallIdentity.EXECUTOR)
    CancelCommand = Forward(floor=Tier.CLIENT)

    async def SubmitCommand(self, request: pb.SubmitCommandRequest, context: Any) -> pb.SubmitCommandResponse:
        """Carry out or queue a command of a chat."""
        check_floor(Tier.CLIENT, "SubmitCommand")
        if not request.command_id:
            raise invalid("command_id", "command_id is required: choose a new one for each command.")
        check_chars("command_id", request.command_id, NAME_CHARS_MAX)
        command = request.command
        await self._check(request)
        wanted = rows_pb2.SubmitCommandRequest(
            project=request.project, run=request.run, command=command, request_id=request.command_id
        )
        makes = command.HasField("branch_from_chat") or (
            command.HasField("user_message")
            and not (request.run and await self._run_exists(RunAddress(request.project, request.run)))
        )
        answer, cursor = await (self._making(wanted) if makes else self._commanding(wanted))
        return pb.SubmitCommandResponse(
            duplicate=answer.duplicate,
            run=answer.run,
            loop=answer.loop if answer.HasField("loop") else None,
            cursor=cursor,
            queued=answer.queued,
            rewound=answer.rewound if answer.HasField("rewound") else None,
        )

    async def _check(self, request: pb.SubmitCommandRequest) -> None:
        """Refuse what only an executor can tell: vendors that there are not, and what does not fit an effect."""
        command = request.command
        messages = (command.user_message, command.retry_from_index.message)
        for model in {command.set_params.patch.model, *(message.settings.model for message in messages)}:
            await self.check_vendor(model, "settings.model")
        approved = command.approve_tools
        if len(approved.calls) == 1 and approved.calls[0].startswith("log://"):
            address = RunAddress(request.project, request.run)
            effect = await self._waiting_effect(address, approved.calls[0])
            # What a client executes is refused by the state of the run.
            if effect and not isinstance(effect, ClientToolEffect):
                accept = proposal_pb2.Accept(contents=approved.contents, answer=approved.answer)
                check_acceptance(effect, accept)

    async def _commanding(self, wanted: rows_pb2.SubmitCommandRequest) -> tuple[Answer, EventCursor]:
        """Command a run that there is: its cursor precedes all that the command causes."""
        address = RunAddress(wanted.project, wanted.run)
        async with self._hubs.hold(address) as hub:
            before = hub.before_call()
            answer = await self._submit(wanted)
        if wanted.command.HasField("abort"):
            self._scheduler.abort(address, answer.run.loop.sequence)
        else:
            self._scheduler.kick(address)
        return answer, before.cursor(answer.cursor)

    async def _making(self, wanted: rows_pb2.SubmitCommandRequest) -> tuple[Answer, EventCursor]:
        """Make a run by a command."""
        answer = await self._submit(wanted)
        address = RunAddress(wanted.project, answer.run.run)
        is_fresh = answer.created and not answer.duplicate and not answer.run.HasField("forked_from")
        fresh = FreshRun(answer.run, cursor_from_pb(answer.cursor)) if is_fresh else None
        try:
            async with self._hubs.hold(address, fresh=fresh) as hub:
                return answer, hub.before_call().cursor(answer.cursor)
        finally:
            self._scheduler.kick(address)

    async def _run_exists(self, address: RunAddress) -> bool:
        if self._hubs.has(address):
            return True
        try:
            await self._ledger.get_run(address)
        except TurnwrightError as error:
            if error.reason is Reason.RUN_NOT_FOUND:
                return False
            raise
        return True

    async def _submit(self, wanted: rows_pb2.SubmitCommandRequest) -> Answer:
        return await self.store.call(self.rows.SubmitCommand, wanted, caller=current_caller())
