"""Decisions on proposals: each is made exactly once; a second decision fails with the first one in its error.

The decision is written to the record in the transaction that ends its waiting. A proposal on which nobody decided in
time is cancelled with a reason, and its run has work again: its next owner finds a rejection without a comment, and the
loop ends. Source: architecture 6, 11; rows RU009, RU013, RU035, RU040, RU249-RU255; decisions C14, C20, C26.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from msgspec import Struct
from sqlalchemy import Connection
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Cursor, DecisionKind, Entry, Right, Run, State, Tier

from turnwright_core.checks import check_bytes, check_chars, check_count, invalid
from turnwright_core.decisions import Decision
from turnwright_core.errors import Reason, fault
from turnwright_core.events import slug_of
from turnwright_core.limits import COMMENT_BYTES_MAX, PATH_CHARS_MAX
from turnwright_core.session import Wait
from turnwright_core.wire.command_records import decision_in, may_have_happened, tool_in, wait_in, with_decision
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.approval_rules import check_acceptable
from turnwright_store.app.loop_rights import OF_ENTRIES
from turnwright_store.app.maintenance import ROWS_MAX, Chore, poll_interval_s, row_chore
from turnwright_store.app.run_events import new_event
from turnwright_store.domain.events import proposal_decided, tool_returned
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.viewers import asker_json
from turnwright_store.domain.write_rules import check_path, check_record
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql.contents import find_entry
from turnwright_store.sql.inbox import list_overdue
from turnwright_store.sql.runs import RunRow, find_run, get_run
from turnwright_store.sql.sessions import waiting_commands
from turnwright_store.sql.views import find_entry_row

REJECTED_OUTCOME: Final = "rejected:403"
"""Outcome of a record whose proposal was rejected (C20, C26)."""

EXPIRED_OUTCOME: Final = "expired:499"
"""Outcome of a record whose proposal expired."""

CONTENTS_MAX: Final = 1000
"""Most contents that come with a decision."""

_VERBS: Final = {DecisionKind.ACCEPTED: "accept", DecisionKind.REJECTED: "reject", DecisionKind.EXPIRED: "expire"}
_PAST: Final = {DecisionKind.ACCEPTED: "accepted", DecisionKind.REJECTED: "rejected"}


class Resolution(Struct, frozen=True):
    """A decision to be made, as ResolveProposal, a command of a session or a written state asks for it.

    `contents` are pairs of path and text that replace the proposed content.
    """

    accept: bool
    comment: str = ""
    contents: tuple[tuple[str, str], ...] = ()
    client_runs: bool = False
    """Whether the client that decides carries out the effect."""
    tool_failed: bool = False
    """Whether the contents are those of a tool of the client that failed."""


class DecidedProposal(Struct, frozen=True):
    """A decided proposal; the cursor is that before it."""

    run: Run
    entry: Entry
    cursor: Cursor


def resolve_proposal(
    tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, path: str, resolution: Resolution
) -> DecidedProposal:
    """Record the decision on a pending proposal, once (RU040, C20).

    Raises NOT_PROPOSED, RULE_DENIED, and RIGHT_MISSING for who accepts a command without the right to run any.
    """
    check_path(path)
    _check(resolution)
    run = get_run(tx.connection, address.project, address.run)
    cursor = run.cursor(rules.incarnation)
    record = _pending(tx.connection, run, path)
    if resolution.accept:
        if _runs_outside(record):
            rules.check_right(caller, Right.COMMAND, address.project, "Accepting what a command does")
        check_acceptable(tx, rules, run, record.record, dict(resolution.contents))
    change = _apply_resolution(tx, caller, record, resolution)
    run = write_decision(tx, rules, run, record, change, caller.name)
    return DecidedProposal(run.run, _record(tx.connection, run, path), cursor)


def _runs_outside(record: Entry) -> bool:
    """Whether the executor carries out something outside of the store once a proposal is accepted."""
    message = CommandRecord.FromString(record.record)
    return wait_in(record.state, message) is Wait.APPROVAL and message.effect_class not in OF_ENTRIES


def get_proposal(connection: Connection, address: RunRef, path: str) -> Entry:
    """The record of a proposal that waits. Raises ENTRY_NOT_FOUND, NOT_PROPOSED."""
    return _pending(connection, get_run(connection, address.project, address.run), path)


def waiting_questions(connection: Connection, run: RunRow) -> list[str]:
    """The questions of a run's latest turn that wait for an answer."""
    if not run.loop_active:
        return []
    waiting = waiting_commands(connection, run.id, run.run.turn)
    return [path for path, (wait, _) in waiting.items() if wait is Wait.ANSWER]


def question_error(run: RunRow, questions: Sequence[str]) -> Exception:
    """The refusal of a text of which nobody can tell what it answers."""
    named = ", ".join(questions)
    message = f"{run.alias} waits for answers: give each by its path, as `turnwright resolve` does ({named})."
    return fault(Reason.COMMAND_GATED, message, run=run.alias, command="user_message", state="waiting_user_input")


def _check(resolution: Resolution) -> None:
    check_bytes("comment", resolution.comment, COMMENT_BYTES_MAX)
    check_count("contents", len(resolution.contents), CONTENTS_MAX)
    if resolution.contents and not resolution.accept:
        raise invalid("contents", "contents can only be set when accepting.")
    if resolution.client_runs and not resolution.accept:
        raise invalid("client_runs", "client_runs can only be set when accepting.")
    paths = Counter(path for path, _ in resolution.contents)
    for path, count in paths.items():
        check_chars("contents.path", path, PATH_CHARS_MAX)
        if count > 1:
            raise invalid("contents", f"Each path has one content; {path or 'the empty one'} appears more than once.")


def _apply_resolution(tx: Transaction, caller: Caller, record: Entry, resolution: Resolution) -> SetEntry:
    made = Decision(
        DecisionKind.ACCEPTED if resolution.accept else DecisionKind.REJECTED,
        resolution.comment,
        caller.name,
        tx.now_ms,
        dict(resolution.contents),
        client_runs=resolution.client_runs,
        tool_failed=resolution.tool_failed,
        decider=asker_json(caller) if resolution.accept and not caller.is_root else "",
    )
    after = with_decision(record.record, made)
    if resolution.accept:
        return SetEntry(state=State.RECORDED, record=after)
    return SetEntry(resolution.comment or "Rejected.", state=State.FAILED, outcome=REJECTED_OUTCOME, record=after)


def write_decision(
    tx: Transaction, rules: StoreRules, run: RunRow, record: Entry, change: SetEntry, principal: str
) -> RunRow:
    """Write a decision to its record, with its event; returns the run. Raises LIMIT_EXCEEDED."""
    check_record(change.record or b"", rules.limits.attributes_bytes_max)
    # The store itself writes the record, whatever the scheme allows clients (RU035).
    write = EntryWrite(record.path, change, Tier.SYSTEM, expected_revision=record.revision)
    made = decision_in(change.record or b"")
    assert made, "who decides says so in the record"
    tool = _tool_of(record)
    is_client_tool = wait_in(State.PROPOSED, CommandRecord.FromString(record.record)) is Wait.CLIENT
    answered = is_client_tool and made.kind is DecisionKind.ACCEPTED
    cause = tool_returned(record.path, tool, made) if answered else proposal_decided(record.path, tool, made)
    event = new_event(tx, run, record.turn, cause)
    # A full run must not wait forever: the decision's event is written beyond the limit of entries.
    return apply_writes(tx, rules, run, [write, event], principal, is_unbounded=True).run


def _tool_of(record: Entry) -> str:
    """The tool of a command; for a proposal that is not a command, taken from its path."""
    return tool_in(record.record) or slug_of(record.path).partition("/")[0]


def _pending(connection: Connection, run: RunRow, path: str) -> Entry:
    """The record of a proposal that waits. Raises ENTRY_NOT_FOUND, NOT_PROPOSED."""
    record = _record(connection, run, path)
    is_of_agents = wait_in(record.state, CommandRecord.FromString(record.record)) is Wait.AGENTS
    if record.state is not State.PROPOSED or is_of_agents:
        raise _not_pending_error(record)
    return record


def _record(connection: Connection, run: RunRow, path: str) -> Entry:
    """The record at a path. Raises ENTRY_NOT_FOUND."""
    record = find_entry(connection, run, path)
    if record is None:
        raise fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {path} in {run.run.run}.", path=path)
    return record


def _not_pending_error(record: Entry) -> Exception:
    """The error for a record that does not wait; if it was decided, with what and by whom."""
    state = record.state.name.lower()
    values = {"path": record.path, "state": state}
    if record.outcome:
        values["outcome"] = record.outcome
    made = decision_in(record.record)
    if made is None:
        message = f"{record.path} is {state}, not a pending proposal: it needs no decision."
        return fault(Reason.NOT_PROPOSED, message, **values)
    time = _time(made)
    values |= {"decision": _VERBS[made.kind], "principal": made.principal, "time": time}
    past = _PAST.get(made.kind)
    how = f"was {past} by {made.principal}" if past else "expired"
    return fault(Reason.NOT_PROPOSED, f"{record.path} {how} at {time}: it is {state} now.", **values)


def _time(made: Decision) -> str:
    moment = datetime.fromtimestamp(made.time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ---- Expiry: by the database's clock, and by no executor

_STORE: Final = "store"
"""The caller in whose name proposals expire."""

Overdue = tuple[str, str, str]
"""Project, run and path of a proposal."""


def expire_proposal(tx: Transaction, rules: StoreRules, overdue: Overdue, wait_ms: int) -> None:
    """Expire a proposal, if it still waits."""
    project, alias, path = overdue
    run = find_run(tx.connection, project, alias)
    shown = find_entry_row(tx.connection, run.id, path) if run else None
    if run is None or shown is None or shown.state != State.PROPOSED or shown.view_ms > tx.now_ms - wait_ms:
        return
    record = _record(tx.connection, run, path)
    after = with_decision(record.record, Decision(DecisionKind.EXPIRED, time_ms=tx.now_ms))
    nobody = f"Nobody decided within {wait_ms / 1000:g} s"
    if may_have_happened(record.record):
        body, state = f"{nobody}, and it may have happened: look before you do it again.", State.FAILED
    else:
        body, state = f"{nobody}, so it was not carried out.", State.CANCELLED
    change = SetEntry(body, state=state, outcome=EXPIRED_OUTCOME, record=after)
    write_decision(tx, rules, run, record, change, _STORE)


def proposal_expiry(database: Database, rules_now: Callable[[], StoreRules], wait_ms: int) -> Chore:
    """The chore that expires proposals after this many milliseconds."""

    def expire(tx: Transaction, overdue: Overdue) -> None:
        expire_proposal(tx, rules_now(), overdue, wait_ms)

    find = partial(list_overdue, wait_ms=wait_ms, page=ROWS_MAX)
    return row_chore("expiry", poll_interval_s(wait_ms), database, find, expire)
