"""Rpcs of SessionService."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from turnwright.sessions.v1 import session_service_pb2 as pb
from turnwright.sessions.v1 import session_service_pb2_grpc
from turnwright.types.v1 import session_command_pb2

from turnwright_core.checks import invalid
from turnwright_core.wire import runs as wire
from turnwright_core.wire.entries import cursor_to_pb
from turnwright_core.wire.runs import queued_command_to_pb
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import sessions, waiting_edits
from turnwright_store.app.message_edits import RewindResult
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, project_locks, query, run_locks
from turnwright_store.sql.idempotency import RequestKey
from turnwright_store.sql.idempotency import find as find_answer


def _locks(request: pb.SubmitCommandRequest) -> set[str]:
    """A run that is made needs its alias, and keeps its family from being removed."""
    if request.command.HasField("branch_from_chat"):
        source = pb.SubmitCommandRequest(project=request.project, run=request.command.branch_from_chat.source)
        return {*run_locks(source), *run_locks(request), *project_locks(request)}
    return run_locks(request) if request.run else project_locks(request)


def _starts(answer: Any) -> str:
    """The run whose work a command has started."""
    return answer.run.run if answer.HasField("loop") else ""


class SessionServicer(Calls, session_service_pb2_grpc.SessionServiceServicer):
    """Serves turnwright.sessions.v1.SessionService."""

    @mutation(locks=_locks, starts=_starts)
    def SubmitCommand(self, request: pb.SubmitCommandRequest, tx: Transaction, caller: Caller) -> Fields:
        if not request.command_id:
            raise invalid("command_id", "command_id is required: choose a new one for each command.")
        address, command = address_of(request), request.command
        tx.detail["command"] = command.WhichOneof("kind")
        done = sessions.submit_command(tx, self._rules, caller, address, command, request.command_id)
        return {
            "run": wire.run_to_pb(done.run),
            "loop": wire.loop_to_pb(done.loop) if done.loop else None,
            "created": done.created,
            "cursor": cursor_to_pb(done.cursor),
            "queued": done.queued,
            "rewound": _rewound(done.rewound) if done.rewound else None,
        }

    @query
    def ListCommands(self, request: pb.ListCommandsRequest, connection: Connection) -> Fields:
        found = waiting_edits.list_commands(connection, address_of(request))
        return {"commands": map(queued_command_to_pb, found)}

    @mutation(locks=run_locks)
    def CancelCommand(self, request: pb.CancelCommandRequest, tx: Transaction, caller: Caller) -> Fields:
        loop = request.loop
        if request.command_id:
            # A command that became a loop is known by the answer that it got.
            key = RequestKey(request.project, caller.name, "SubmitCommand", request.command_id)
            stored = find_answer(tx.connection, key)
            loop = pb.SubmitCommandResponse.FromString(stored[1]).loop.sequence if stored else 0
        run = waiting_edits.cancel_command(tx, self._rules, caller, address_of(request), request.command_id, loop)
        return {"run": wire.run_to_pb(run)}


def _rewound(done: RewindResult) -> session_command_pb2.Rewound:
    return session_command_pb2.Rewound(entries_closed=done.closed, entries_opened=done.opened, files_kept=True)
