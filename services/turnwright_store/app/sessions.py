"""Commands of a session: each is carried out, queued or refused in one transaction, by the state of the run.

Commands use the functions of the other rpcs, and there is no second queue: a user's message is a loop, and a priority
message is injected.
Source: architecture 7; rows RS06, RS07, RC01, RC02, RC06-RC12; decision C48.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.store import EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import (
    Cursor,
    Loop,
    Right,
    RuleVerdict,
    Run,
    RunSettings,
    SessionState,
    State,
    Tier,
    Visibility,
)

from turnwright_core.checks import check_bytes, check_count, invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import CALIBRATION_MAX, COMMENT_BYTES_MAX
from turnwright_core.session import DRAFT, TOKENS, WINDOW_TOKENS, Wait
from turnwright_core.text import count_tokens
from turnwright_core.value_methods import to_attributes_json
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import commands, control, message_edits
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.approval_rules import set_rules_like
from turnwright_store.app.edit_plans import EditPlan, Resend, apply_edit, plan_edit, settings_of
from turnwright_store.app.forks import fork_run
from turnwright_store.app.message_edits import RewindResult
from turnwright_store.app.plans import context_window
from turnwright_store.app.proposals import Resolution, question_error, resolve_proposal, waiting_questions
from turnwright_store.app.registry import session_state_of
from turnwright_store.app.session_commands import content_of, kind_of, patch_of, preview_of
from turnwright_store.app.waiting_edits import add_waiting, waiting_edits
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.session_gates import GATES, CommandKind, Gate, gate_error
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.user_content import UserContent
from turnwright_store.ports import Transaction
from turnwright_store.sql.runs import RunRow, find_run, get_run
from turnwright_store.sql.sessions import waiting_commands
from turnwright_store.sql.turns import find_turn
from turnwright_store.sql.views import find_entry_rows

DRAFT_BYTES_MAX: Final = 64 * 1024
"""Longest draft, in bytes."""

RESULT_BYTES_MAX: Final = 512 * 1024
"""Longest result of a client's tool, in bytes: the record of its command keeps it."""

CALLS_MAX: Final = 100
"""Most calls that one command decides on."""


class SubmittedCommand(Struct, frozen=True):
    """A command that was carried out or queued; the cursor is that before it."""

    run: Run
    cursor: Cursor
    loop: Loop | None = None
    created: bool = False
    queued: bool = False
    rewound: RewindResult | None = None


class _Outcome(Struct, frozen=True):
    loop: Loop | None = None
    queued: bool = False
    rewound: RewindResult | None = None


class _Session(Struct, frozen=True):
    """A run that gets a command."""

    tx: Transaction
    rules: StoreRules
    caller: Caller
    address: RunRef
    command_id: str
    row: RunRow
    state: SessionState
    gate: Gate


def submit_command(
    tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, command: pb.SessionCommand, command_id: str
) -> SubmittedCommand:
    """Carry out or queue a command. Raises COMMAND_GATED, and the errors of the command itself."""
    kind = kind_of(command)
    rules.check_right(caller, _RIGHTS[kind], address.project, f"The command {kind.value}")
    if kind is CommandKind.BRANCH_FROM_CHAT:
        return _branch(tx, rules, caller, address, command.branch_from_chat)
    row = find_run(tx.connection, address.project, address.run) if address.run else None
    if row is None and kind is CommandKind.USER_MESSAGE:
        return _start_session(tx, rules, caller, address, command.user_message, command_id)
    row = row or get_run(tx.connection, address.project, address.run)
    state = session_state_of(tx.connection, row)
    gate = GATES[kind][state]
    if gate is Gate.REFUSE:
        raise gate_error(address.run, kind, state)
    at = _Session(tx, rules, caller, address, command_id, row, state, gate)
    handle = _HANDLERS.get(kind)
    done = (handle(getattr(command, kind.value), at) if handle else _edit(command, at)) or _Outcome()
    after = get_run(tx.connection, address.project, address.run)
    cursor = row.cursor(rules.incarnation)
    return SubmittedCommand(_show(tx, after), cursor, done.loop, queued=done.queued, rewound=done.rewound)


def _show(tx: Transaction, row: RunRow) -> Run:
    return replace(row.run, state=session_state_of(tx.connection, row))


def _branch(
    tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, command: pb.BranchFromChat
) -> SubmittedCommand:
    if command.up_to_message_id:
        # Of the source: the branch has the same messages, but nobody knows its name yet.
        source = get_run(tx.connection, address.project, command.source)
        message_edits.find_message(tx, source, command.up_to_message_id)
    run = fork_run(tx, rules, caller, RunRef(address.project, command.source), address.run, 0)
    row = get_run(tx.connection, run.project, run.run)
    rewound = None
    if command.up_to_message_id:
        rewound = _truncate_after(tx, rules, caller, row, command.up_to_message_id)
        row = get_run(tx.connection, run.project, run.run)
    return SubmittedCommand(_show(tx, row), row.cursor(rules.incarnation), created=True, rewound=rewound)


def _truncate_after(tx: Transaction, rules: StoreRules, caller: Caller, row: RunRow, path: str) -> RewindResult | None:
    last = message_edits.find_message(tx, row, path)
    following = message_edits.next_message(tx.connection, row, last.position)
    if following is None:
        return None
    # The branch gets its copy at an earlier moment than the rewind.
    tx.next_moment()
    return message_edits.rewind_before_message(tx, rules, row, caller.name, following)


def _start_session(
    tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, command: pb.UserMessage, command_id: str
) -> SubmittedCommand:
    content = content_of(command, command_id)
    settings, given = settings_of(command, tx, None, content.images), RunSettings()
    done = commands.enqueue_loop(tx, rules, caller, address, content.text, settings, given, command_id=command_id)
    apply_writes(tx, rules, done.row, content.brought, caller.name)
    row = get_run(tx.connection, done.row.project, done.row.alias)
    return SubmittedCommand(_show(tx, row), done.cursor, done.loop, created=True)


def _message(command: pb.UserMessage, at: _Session) -> _Outcome | None:
    content = content_of(command, at.command_id)
    if questions := waiting_questions(at.tx.connection, at.row):
        _answer(at, questions, content)
        return None
    if command.priority and at.gate is Gate.QUEUE:
        if content.images:
            raise invalid("parts", "A priority message has only texts: send the images without priority.")
        check_bytes("parts", content.text, COMMENT_BYTES_MAX)
        control.inject_message(at.tx, at.rules, at.caller, at.address, content.text)
        return None
    apply_writes(at.tx, at.rules, at.row, content.brought, at.caller.name)
    return _enqueue(at, Resend(content.text, settings_of(command, at.tx, at.row, content.images)))


def _answer(at: _Session, questions: Sequence[str], content: UserContent) -> None:
    """Take a message for the answer to the question that waits: behind it, it would wait for ever."""
    if len(questions) > 1:
        raise question_error(at.row, questions)
    if content.images:
        message = f"{questions[0]} waits for an answer in words: send it without images, or reject the question first."
        raise invalid("parts", message)
    check_bytes("parts", content.text, COMMENT_BYTES_MAX)
    resolve_proposal(at.tx, at.rules, at.caller, at.address, questions[0], Resolution(True, content.text))


def _enqueue(at: _Session, message: Resend, rewound: RewindResult | None = None) -> _Outcome:
    """Add a loop to the queue."""
    settings, given = message.settings, RunSettings()
    done = commands.enqueue_loop(
        at.tx, at.rules, at.caller, at.address, message.text, settings, given, command_id=at.command_id
    )
    return _Outcome(done.loop, at.gate is Gate.QUEUE, rewound)


def _edit(command: pb.SessionCommand, at: _Session) -> _Outcome:
    is_queued = at.gate is Gate.QUEUE
    waiting = {one.edit.rewrite: one.edit.content for one in waiting_edits(at.tx.connection, at.row)}
    plan = plan_edit(at.tx, at.row, at.caller.name, command, waiting if is_queued else None)
    if is_queued:
        return _queue_edit(command, at, plan)
    rewound = apply_edit(at.tx, at.rules, at.row, at.caller.name, plan.edit) if plan.edit else RewindResult()
    return _enqueue(at, plan.resend, rewound) if plan.resend else _Outcome(rewound=rewound)


def _queue_edit(command: pb.SessionCommand, at: _Session, plan: EditPlan) -> _Outcome:
    commands.check_queue(at.tx, at.row, at.rules.loops_queued_max)
    if plan.edit:
        origin = (kind_of(command).value, preview_of(command), at.command_id, at.caller.name)
        add_waiting(at.tx, at.rules, at.row, plan.edit, origin, brings_loop=plan.resend is not None)
    return _enqueue(at, plan.resend) if plan.resend else _Outcome(queued=plan.edit is not None)


def _set_params(command: pb.SetParams, at: _Session) -> None:
    control.configure_run(at.tx, at.rules, at.caller, at.address, patch_of(command.patch))


def _abort(_command: pb.AbortSession, at: _Session) -> None:
    control.abort_run(at.tx, at.rules, at.address)


def _approve(command: pb.ApproveTools, at: _Session) -> None:
    contents = tuple((one.path, one.content) for one in command.contents)
    _decide(command.calls, command.scope, Resolution(True, command.answer, contents), at)


def _reject(command: pb.RejectTools, at: _Session) -> None:
    _decide(command.calls, command.scope, Resolution(False, command.reason), at)


def _decide(calls: Sequence[str], scope: int, resolution: Resolution, at: _Session) -> None:
    accept, comment = resolution.accept, resolution.comment
    if scope not in pb.DecisionScope.values():
        raise invalid("scope", f"{scope} is not a scope that this version knows.")
    if not calls:
        raise invalid("calls", "calls is required: name the calls to decide on.")
    check_count("calls", len(calls), CALLS_MAX)
    check_bytes("answer" if accept else "reason", comment, COMMENT_BYTES_MAX)
    if len(calls) > 1 and (resolution.contents or (accept and comment)):
        raise invalid("calls", "Contents and an answer are for one call: name one call.")
    waiting = _waiting(at)
    named = {record.call_id: path for path, (_, record) in waiting.items() if record.call_id}
    paths = [named.get(call, call) for call in calls]
    if len(set(paths)) < len(paths):
        raise invalid("calls", "calls must name each call once.")
    asked = {path: record for path, (wait, record) in waiting.items() if wait is Wait.APPROVAL and path in paths}
    for call, path in zip(calls, paths, strict=True):
        if not path.startswith("log://"):
            raise fault(Reason.ENTRY_NOT_FOUND, f"No call {call!r} of {at.address.run} waits.", path=call)
        if accept:
            _check_answer(call, comment, is_question=path in waiting and waiting[path][0] is Wait.ANSWER)
        resolve_proposal(at.tx, at.rules, at.caller, at.address, path, resolution)
    if scope == pb.DECISION_SCOPE_RUN:
        set_rules_like(at.tx, at.rules, at.caller, at.address, asked, RuleVerdict.ALLOW if accept else RuleVerdict.DENY)


def _check_answer(call: str, answer: str, *, is_question: bool) -> None:
    if is_question and not answer.strip():
        raise invalid("answer", f"{call} is a question: approve it with `answer`, or reject it.")
    if answer and not is_question:
        raise invalid("answer", f"{call} is not a question: approve it without an answer.")


def _tool_result(command: pb.IdeToolResult, at: _Session) -> None:
    check_bytes("content", command.content, RESULT_BYTES_MAX)
    waiting = ((path, record) for path, (wait, record) in _waiting(at).items() if wait is Wait.CLIENT)
    path = next((path for path, record in waiting if command.call in (path, record.call_id)), "")
    if not (command.call and path):
        raise fault(Reason.ENTRY_NOT_FOUND, f"No call {command.call!r} waits for its client.", path=command.call)
    result = Resolution(True, contents=(("", command.content),), tool_failed=command.failed)
    resolve_proposal(at.tx, at.rules, at.caller, at.address, path, result)


def _waiting(at: _Session) -> dict[str, tuple[Wait, CommandRecord]]:
    return waiting_commands(at.tx.connection, at.row.id, at.row.run.turn)


def _set_draft(command: pb.SetDraft, at: _Session) -> None:
    check_bytes("text", command.text, DRAFT_BYTES_MAX)
    change: SetEntry | RemoveEntry = RemoveEntry()
    if command.text:
        usage = to_attributes_json(_draft_usage(at, command.text))
        change = SetEntry(command.text, usage, Visibility.ARCHIVED, state=State.RESOLVED)
    elif DRAFT not in find_entry_rows(at.tx.connection, at.row.id, [DRAFT]):
        return
    apply_writes(at.tx, at.rules, at.row, [EntryWrite(DRAFT, change, Tier.SYSTEM)], at.caller.name)


def _draft_usage(at: _Session, text: str) -> dict[str, int]:
    """What a draft would take of the context window, as the run's latest turn that has ended had it."""
    connection, row = at.tx.connection, at.row
    turn = find_turn(connection, row.id, row.run.turn - (1 if row.turn_open else 0))
    rate = min(max(0, turn.result.calibration), CALIBRATION_MAX) if turn and turn.result else 0
    window = context_window(connection, row) or (turn.request.context_length if turn else 0)
    return {TOKENS: ceil(count_tokens(text, at.rules.token_divisor) * (rate or 1)), WINDOW_TOKENS: window}


_HANDLERS: Final[Mapping[CommandKind, Callable[[Any, _Session], _Outcome | None]]] = {
    CommandKind.USER_MESSAGE: _message,
    CommandKind.SET_PARAMS: _set_params,
    CommandKind.ABORT: _abort,
    CommandKind.APPROVE_TOOLS: _approve,
    CommandKind.REJECT_TOOLS: _reject,
    CommandKind.SET_DRAFT: _set_draft,
    CommandKind.IDE_TOOL_RESULT: _tool_result,
}
"""Handlers by kind of command; the others edit messages."""

_RIGHTS: Final[Mapping[CommandKind, Right]] = {
    **dict.fromkeys(CommandKind, Right.EDIT),
    **dict.fromkeys((CommandKind.APPROVE_TOOLS, CommandKind.REJECT_TOOLS), Right.DECIDE),
    **dict.fromkeys(
        (
            CommandKind.USER_MESSAGE, CommandKind.SET_PARAMS, CommandKind.ABORT, CommandKind.BRANCH_FROM_CHAT,
            CommandKind.IDE_TOOL_RESULT, CommandKind.RETRY_FROM_INDEX, CommandKind.REGENERATE,
        ),
        Right.RUN,
    ),
}  # fmt: skip
"""The right that each kind of command needs; what it brings about may need more."""
