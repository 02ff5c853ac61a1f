"""The ledger of a run: its turns and their ends. Every write here can be fenced.

Source: architecture 3 (runs, loops, turns, leases), 11; rows RU001-RU006, RU101-RU111; decisions C6, C27, C36.
"""

from __future__ import annotations

from math import isfinite

from msgspec.structs import replace
from turnwright_values.store import EndTurnRequest, EndTurnResponse, EntryWrite, LoopEnd, NextTurn
from turnwright_values.types import Loop, Turn, Usage

from turnwright_core.checks import check_bytes, invalid, transition_forbidden
from turnwright_core.errors import Reason, fault
from turnwright_core.events import event_write
from turnwright_core.limits import LOOP_SUMMARY_BYTES_MAX, REASON_BYTES_MAX
from turnwright_core.runs import (
    LOOP_ACTIVE,
    LOOP_ENDED,
    PROPOSED,
    QUEUED,
    RUN_TRANSITIONS,
    RUNNING,
    TERMINAL_UPDATES,
    run_status_after,
)
from turnwright_core.session import Wait
from turnwright_core.turn_settings import with_settings_of_run
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import quotas, webhooks
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.approval_rules import rules_in
from turnwright_store.app.commit_delta import publish
from turnwright_store.app.run_events import new_event
from turnwright_store.app.store_rules import newer_schemes
from turnwright_store.app.waiting_edits import apply_waiting_edits
from turnwright_store.domain.events import mode_switched
from turnwright_store.domain.schedules import count_failure, has_failed, pause_event
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.write_rules import check_writes
from turnwright_store.ports import Transaction
from turnwright_store.sql import leases as lease_rows
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql import runs as run_rows
from turnwright_store.sql import schedules as schedule_rows
from turnwright_store.sql import turns as turn_rows
from turnwright_store.sql.registry import put_window
from turnwright_store.sql.runs import RunHead, RunRow, bump_revision, get_run, write_run
from turnwright_store.sql.scopes import write_deferred_bumps
from turnwright_store.sql.sessions import waiting_commands


def check_fence(run: RunHead, epoch: int) -> None:
    """Check the fencing token of a write. Raises LEASE_LOST."""
    if epoch != run.epoch:
        raise fault(
            Reason.LEASE_LOST,
            f"The run {run.alias} has been claimed by another owner (epoch {run.epoch}, not {epoch}).",
            run=run.alias,
            epoch=run.epoch,
        )


def with_status(run: RunRow, status: int) -> RunRow:
    """The run at another status. Raises TRANSITION_FORBIDDEN (RU107)."""
    if status not in (run.run.status, *RUN_TRANSITIONS[run.run.status]):
        raise transition_forbidden("run", run.run.status, status, f"A run at {run.run.status} cannot go to {status}.")
    return replace(run, run=replace(run.run, status=status))


def begin_loop(run: RunRow, loop: Loop, by: str) -> tuple[RunRow, Loop]:
    """The run with this loop of its queue running, which `by` has asked for, and that loop (not stored yet)."""
    run = with_status(run, RUNNING)
    loop = replace(loop, status=RUNNING, reason="", revision=run.revision_run)
    running = replace(run.run, loop=loop, loops_queued=run.run.loops_queued - 1)
    return replace(run, loop_active=loop.sequence, asked_by=by, run=running), loop


def _next_turn(tx: Transaction, rules: StoreRules, caller: Caller, run: RunRow, new: NextTurn) -> tuple[RunRow, Turn]:
    """The next turn, and the run with it (not stored yet)."""
    loop = _running_loop(run)
    number = run.turn + 1
    checked = check_writes(rules, caller, [_with_turn_number(write, number) for write in new.writes])
    if not loop.first_turn:
        checked = [*_mode_switch(tx, run, loop, number), *checked]
    run = apply_writes(tx, rules, run, checked, caller.name, turn=number, loop=loop.sequence).run
    run = bump_revision(tx, run)
    # The current settings, which the owner may not have seen yet.
    request = with_settings_of_run(new.request, run.run.settings)
    turn = Turn(number, loop.sequence, request, None, tx.now_ms, 0, run.revision_run)
    turn_rows.add_turn(tx.connection, run.id, turn)
    if not loop.first_turn:
        loop = replace(loop, first_turn=number, revision=run.revision_run)
        loop_rows.write_loop(tx.connection, run.id, loop)
    return replace(run, turn=number, turn_open=number, run=replace(run.run, turn=number, loop=loop)), turn


def _mode_switch(tx: Transaction, run: RunRow, loop: Loop, number: int) -> list[EntryWrite]:
    """The event for a loop that begins in another mode than the one before it."""
    before = loop_rows.mode_before(tx.connection, run.id, loop.sequence) if loop.sequence > 1 else None
    if before in (None, loop.settings.mode):
        return []
    return [event_write(number, mode_switched(loop.sequence, before, loop.settings.mode))]


def _with_turn_number(write: EntryWrite, number: int) -> EntryWrite:
    path = write.path.replace("{turn}", str(number))
    return write if path == write.path else replace(write, path=path)


def _running_loop(run: RunRow) -> Loop:
    loop = run.active
    if loop is None or loop.status != RUNNING:
        status = loop.status if loop else QUEUED
        raise transition_forbidden(
            "turn", status, RUNNING, "A turn needs a running loop: claim the run, or decide on its proposal."
        )
    if run.turn_open:
        raise transition_forbidden(
            "turn", run.turn_open, run.turn + 1, f"Turn {run.turn_open} has not ended: end it first."
        )
    return loop


def set_status(tx: Transaction, run: RunRow, status: int) -> RunRow:
    """The run, and its active loop, at another status. Raises INVALID_FIELD, TRANSITION_FORBIDDEN."""
    if status not in LOOP_ACTIVE:
        raise invalid("run_status", f"run_status must be {RUNNING} or {PROPOSED}; the end of a turn sets the others.")
    loop = run.active
    if loop is None:
        raise transition_forbidden(
            "loop", run.run.status, status, "The run has no active loop whose status could change."
        )
    if run.run.status == loop.status == status:
        return run
    run = bump_revision(tx, with_status(run, status))
    loop = replace(loop, status=status, revision=run.revision_run)
    loop_rows.write_loop(tx.connection, run.id, loop)
    if status == PROPOSED and run.has_webhooks and _waits_for_somebody(tx, run):
        webhooks.notify(tx, run, webhooks.LOOP_WAITING, loop)
    return write_run(tx, replace(run, run=replace(run.run, loop=loop)))


def _waits_for_somebody(tx: Transaction, run: RunRow) -> bool:
    """Whether a person or a client has to act, and not only agents."""
    waits = [wait for wait, _ in waiting_commands(tx.connection, run.id, run.run.turn).values()]
    return Wait.AGENTS not in waits or any(wait not in (Wait.AGENTS, Wait.WORK) for wait in waits)


def end_turn(tx: Transaction, rules: StoreRules, caller: Caller, end: EndTurnRequest) -> EndTurnResponse:
    """End a turn, and the loop where the request says so, or open the next turn."""
    _check_end(end)
    run = get_run(tx.connection, end.project, end.run)
    check_fence(run, end.epoch)
    # A run whose loop has ended shows the latest one.
    is_shown = end.loop_end is None or run.loop_active == run.loops
    is_read_back = is_shown and (bool(end.view_filter) or tx.is_followed(run.scope))
    ended = opened = None
    tx.deferred_bumps = {}
    if end.turn or end.loop_end:
        run, ended = _close_turn(tx, rules, caller, run, end, is_read_back=is_read_back)
    if end.next:
        if end.turn:
            # A rewind to the end of this turn must not show what the next one began with.
            tx.next_moment()
        run, opened = _next_turn(tx, rules, caller, run, end.next)
    write_deferred_bumps(tx)
    loop = run.run.loop
    assert loop
    has_deliveries = end.loop_end is not None and webhooks.notify(tx, run, webhooks.LOOP_ENDED, loop)
    loop_continues = not end.loop_end and loop.status == RUNNING
    run = write_run(tx, run, run_rows.WRITE_CONTINUED if loop_continues else run_rows.WRITE)
    edited = apply_waiting_edits(tx, rules, run, loop.sequence) if end.loop_end else None
    if edited:
        # What an edit has changed, only the database can tell.
        run, is_read_back = edited, False
    is_released = end.release and end.loop_end is not None and not run.run.loops_queued
    if is_released:
        lease_rows.release(tx.connection, run.id)
    turns = [turn for turn in (ended, opened) if turn]
    change = publish(tx, rules, run, turns, wanted=end.view_filter) if is_read_back else None
    cursor = run.cursor(rules.incarnation)
    schemes = newer_schemes(rules, end.schemes_version) if opened else None
    held = rules_in(tx.connection, rules, run, end.rules_version) if opened else None
    return EndTurnResponse(run.run, cursor, opened, schemes, change, is_released, held, has_deliveries)


def _close_turn(
    tx: Transaction, rules: StoreRules, caller: Caller, run: RunRow, end: EndTurnRequest, *, is_read_back: bool
) -> tuple[RunRow, Turn | None]:
    """The run after the end of its open turn (not stored yet); the turn, if the caller wants it."""
    number = end.turn
    if number != run.turn_open:
        raise transition_forbidden(
            "turn", run.turn_open, number, f"Turn {number} is not open; turn {run.turn_open} is (0: none)."
        )
    loop = run.active
    if loop is None:
        status = end.loop_end.status if end.loop_end else RUNNING
        raise transition_forbidden("loop", run.run.status, status, "The run has no active loop.")
    checked = check_writes(rules, caller, end.writes)
    is_end = end.loop_end is not None
    if end.loop_end:
        checked += _count_end(tx, run, loop, end.loop_end)
    run = bump_revision(tx, apply_writes(tx, rules, run, checked, caller.name, is_unbounded=is_end).run)
    loop = replace(loop, revision=run.revision_run)
    ended = None
    if number and end.result:
        moment = run.cursor(rules.incarnation)
        ended = turn_rows.end_turn(
            tx.connection, run.id, number, end.result, tx.now_ms, moment, is_read_back=is_read_back
        )
        quotas.settle(tx, run, number, end.result)
        loop = replace(loop, turns=loop.turns + 1, usage=add_usage(loop.usage, end.result.usage))
        if window := end.result.reported_window:
            vendor_model = turn_rows.get_turn(tx.connection, run.id, number).request.vendor_model
            put_window(tx.connection, vendor_model, window)
    run = replace(run, turn_open=0, run=replace(run.run, loop=loop))
    if end.loop_end:
        run = _end_loop(run, loop, end.loop_end, tx.now_ms)
    loop_rows.write_loop(tx.connection, run.id, run.run.loop or loop)
    return run, ended


def _count_end(tx: Transaction, run: RunRow, loop: Loop, end: LoopEnd) -> list[EntryWrite]:
    """Count the end of a loop for the schedule that has begun it; the event, if that is paused now."""
    if not loop.settings.synthetic:
        return []
    is_failure = has_failed(end.status, end.reason)
    row = next((one for one in schedule_rows.list_schedules(tx.connection, run.id) if one.loop == loop.sequence), None)
    if row is None or is_failure is None:
        return []
    schedule = count_failure(row.schedule, is_failure=is_failure)
    schedule_rows.write_schedule(tx.connection, run.id, replace(row, schedule=schedule, loop=0))
    ending = f"{end.status}, {end.reason}" if end.reason else f"{end.status}"
    why = f"its last {schedule.failures} loops failed, the last one with {ending}"
    event = pause_event(schedule.schedule_id, schedule.failures, why)
    return [new_event(tx, run, run.turn, event)] if schedule.paused and not row.schedule.paused else []


def _check_end(end: EndTurnRequest) -> None:
    if end.turn and end.result is None:
        raise invalid("result", "result is required to end a turn.")
    if not (end.turn or end.loop_end):
        if end.next is None:
            raise invalid("turn", "Without a turn, set loop_end to end the loop, or next to open its next turn.")
        if end.writes:
            raise invalid("writes", "No turn and no loop is ended: what the next turn begins with belongs to next.")
    if end.result:
        result = end.result
        costs = {"cost_usd": result.usage.cost_usd, "lost_cost_usd": result.lost_cost_usd}
        for field, cost in {**costs, "tool_cost_usd": result.tool_cost_usd}.items():
            if not isfinite(cost or 0):
                raise invalid(field, f"{field} must be a finite number.")
    if end.next:
        _check_next(end, end.next.request.temperature)
    if end.loop_end:
        _check_loop_end(end.loop_end)


def _check_next(end: EndTurnRequest, temperature: float) -> None:
    if end.loop_end:
        raise invalid("next", "`next` cannot be combined with loop_end: the loop ends.")
    if not 0 <= temperature <= 2:
        raise invalid("temperature", f"temperature must be 0 to 2; it is {temperature}.")


def _check_loop_end(end: LoopEnd) -> None:
    if end.status not in LOOP_ENDED:
        raise invalid("loop_end.status", f"A loop ends at {', '.join(map(str, sorted(LOOP_ENDED)))}; not {end.status}.")
    check_bytes("loop_end.reason", end.reason, REASON_BYTES_MAX)
    check_bytes("loop_end.summary", end.summary, LOOP_SUMMARY_BYTES_MAX)


def _end_loop(run: RunRow, loop: Loop, end: LoopEnd, now_ms: int) -> RunRow:
    """The run after its active loop has ended (C6, C27)."""
    loop = replace(loop, status=end.status, reason=end.reason, summary=end.summary, end_ms=now_ms)
    run = with_status(run, run_status_after(end.status, end.reason))
    says = end.summary or end.status in TERMINAL_UPDATES
    summary = end.summary if says else run.run.summary
    at_rest = replace(run.run, loop=loop, summary=summary)
    return replace(run, loop_active=0, asked_by=None, abort_requested=False, run=at_rest)


def add_usage(total: Usage, more: Usage) -> Usage:
    """The sum of two usages; a cost is known when one of them knows it."""
    costs = [usage.cost_usd for usage in (total, more) if usage.cost_usd is not None]
    return Usage(
        total.prompt_tokens + more.prompt_tokens,
        total.cached_tokens + more.cached_tokens,
        total.completion_tokens + more.completion_tokens,
        total.reasoning_tokens + more.reasoning_tokens,
        total.total_tokens + more.total_tokens,
        sum(costs) if costs else None,
    )
