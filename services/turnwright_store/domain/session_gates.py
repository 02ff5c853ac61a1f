"""Which command a session takes in which state: one table, kinds of commands by states.

Source: rows RS06, RS07, RC06, RC11; decision C48.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from turnwright_values.types import SessionState

from turnwright_core.errors import Reason, fault


class CommandKind(Enum):
    """The kinds of commands, by their names in the contract."""

    USER_MESSAGE = "user_message"
    SET_PARAMS = "set_params"
    ABORT = "abort"
    APPROVE_TOOLS = "approve_tools"
    REJECT_TOOLS = "reject_tools"
    BRANCH_FROM_CHAT = "branch_from_chat"
    SET_DRAFT = "set_draft"
    IDE_TOOL_RESULT = "ide_tool_result"
    UPDATE_MESSAGE = "update_message"
    REMOVE_MESSAGE = "remove_message"
    TRUNCATE_MESSAGES = "truncate_messages"
    RETRY_FROM_INDEX = "retry_from_index"
    REGENERATE = "regenerate"
    REWIND_TO_TURN = "rewind_to_turn"
    RESTORE_FROM_TRAJECTORY = "restore_from_trajectory"


class Gate(Enum):
    """What happens to a command."""

    RUN = "run"
    """It is carried out at once."""
    QUEUE = "queue"
    """Queued behind earlier work."""
    REFUSE = "refuse"
    """Refused, because there is nothing that it could apply to."""


_S: Final = SessionState
_RESTING: Final = (_S.IDLE, _S.COMPLETED, _S.ERROR)
_BUSY: Final = (_S.GENERATING, _S.EXECUTING_TOOLS)
_WAITING: Final = (_S.PAUSED, _S.WAITING_IDE, _S.WAITING_USER_INPUT)


def _row(resting: Gate, busy: Gate, waiting: Gate, **other: Gate) -> Mapping[SessionState, Gate]:
    row = {**dict.fromkeys(_RESTING, resting), **dict.fromkeys(_BUSY, busy), **dict.fromkeys(_WAITING, waiting)}
    return row | {SessionState[name.upper()]: gate for name, gate in other.items()}


_ALWAYS: Final = _row(Gate.RUN, Gate.RUN, Gate.RUN)
_EDIT: Final = _row(Gate.RUN, Gate.QUEUE, Gate.QUEUE)
_DECISION: Final = _row(Gate.REFUSE, Gate.REFUSE, Gate.RUN, waiting_ide=Gate.REFUSE)

GATES: Final[Mapping[CommandKind, Mapping[SessionState, Gate]]] = {
    # A message answers the question that waits.
    CommandKind.USER_MESSAGE: _row(Gate.RUN, Gate.QUEUE, Gate.QUEUE, waiting_user_input=Gate.RUN),
    CommandKind.SET_PARAMS: _ALWAYS,
    CommandKind.ABORT: _ALWAYS,
    CommandKind.APPROVE_TOOLS: _DECISION,
    CommandKind.REJECT_TOOLS: _DECISION,
    CommandKind.BRANCH_FROM_CHAT: _ALWAYS,
    CommandKind.SET_DRAFT: _ALWAYS,
    CommandKind.IDE_TOOL_RESULT: _row(Gate.REFUSE, Gate.REFUSE, Gate.REFUSE, waiting_ide=Gate.RUN),
    CommandKind.UPDATE_MESSAGE: _EDIT,
    CommandKind.REMOVE_MESSAGE: _EDIT,
    CommandKind.TRUNCATE_MESSAGES: _EDIT,
    CommandKind.RETRY_FROM_INDEX: _EDIT,
    CommandKind.REGENERATE: _EDIT,
    CommandKind.REWIND_TO_TURN: _EDIT,
    CommandKind.RESTORE_FROM_TRAJECTORY: _EDIT,
}


def gate_error(run: str, kind: CommandKind, state: SessionState) -> Exception:
    """The refusal of a command that the state does not allow."""
    state_name = state.name.lower()
    message = f"{run} is {state_name}: nothing waits that {kind.value} could be about. Watch its state, then send it."
    return fault(Reason.COMMAND_GATED, message, run=run, command=kind.value, state=state_name)
