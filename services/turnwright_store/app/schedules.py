"""Schedules of runs (cron or interval). Each tick is one transaction.

A tick adds an event to the run, whatever it is doing: it interrupts nothing and needs no room in the queue. A schedule
with a prompt also begins a loop. If the run is busy, the model reads the event in the next turn; the schedule is
checked again until such a turn has begun, or the run is idle and the loop begins after all. Every replica finds what is
due by an index; the transaction checks again, so each tick happens once. A tick that fails is put off, and pauses its
schedule in the end, so it holds up no other one. Source: architecture 7; rows RE07, RH04, OM32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Entry, Loop, Right, RunSettings, Schedule

from turnwright_core.checks import check_count
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.events import RunEvent, Subkind, event_path, event_write
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import commands
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.inheritance import latest_asked
from turnwright_store.app.loop_rights import check_asker
from turnwright_store.app.maintenance import ROWS_MAX, Chore, row_chore
from turnwright_store.app.run_events import turn_of_cause, write_event
from turnwright_store.app.scheduled_runs import STORE, begin_run, latest_runs, miss_run
from turnwright_store.domain.checks import check_loop_settings
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.schedules import (
    FAILURES_MAX,
    Firing,
    check_schedule,
    count_failure,
    loop_settings,
    next_time_ms,
    pause_event,
)
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.viewers import asker_json
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import schedules as rows
from turnwright_store.sql.contents import find_entry
from turnwright_store.sql.registry import get_model
from turnwright_store.sql.runs import RunRow, find_run, get_run
from turnwright_store.sql.schedules import ScheduleRow
from turnwright_store.sql.views import list_entry_rows

SCHEDULES_MAX: Final = 100
"""Most schedules of a run."""

LOOK_EVERY_S: Final = 1.0
"""Seconds between two queries for what is due."""

LOOK_AGAIN_MS: Final = 10_000
"""Milliseconds until the next check whether a busy run has read the event."""

_NUMBERED_MAX: Final = 100
"""Events of one schedule and turn that are looked through for the latest."""

R = TypeVar("R")

_SOURCE: Final = "schedule"


def set_schedule(tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, schedule: Schedule) -> Schedule:
    """Add or replace a schedule.

    Raises RUN_NOT_FOUND, INVALID_FIELD, LIMIT_EXCEEDED, MODEL_NOT_FOUND, RIGHT_MISSING.
    """
    run = get_run(tx.connection, address.project, address.run)
    checked = check_schedule(schedule, tx.now_ms)
    if checked.settings:
        check_loop_settings(checked.settings)
        if checked.settings.yolo:
            rules.check_right(caller, Right.COMMAND, address.project, "yolo")
        if checked.settings.model:
            get_model(tx.connection, checked.settings.model)
    if checked.new_run:
        rules.check_right(caller, Right.RUN, address.project, "A schedule of new runs")
    before = _readable(lambda: rows.find_schedule(tx.connection, run.id, checked.schedule_id))
    firings = _settled(before.firings) if before and checked.new_run else ()
    if not rows.put_schedule(tx.connection, run.id, checked, asker_json(caller), firings):
        check_count("schedules", rows.count_schedules(tx.connection, run.id), SCHEDULES_MAX)
    return _shown(tx.connection, run, checked.schedule_id)


def _settled(firings: Iterable[Firing]) -> tuple[Firing, ...]:
    """The latest times, without any whose end is yet to be counted."""
    return tuple([replace(one, is_open=False) for one in firings])


def _shown(connection: Connection, run: RunRow, name: str) -> Schedule:
    row = _row_of(connection, run, name)
    return replace(row.schedule, latest=latest_runs(connection, run.project, row.firings))


def _row_of(connection: Connection, run: RunRow, name: str) -> ScheduleRow:
    """Raises ENTRY_NOT_FOUND."""
    row = rows.find_schedule(connection, run.id, name)
    if row is None:
        raise _not_found(run, name)
    return row


def _not_found(run: RunRow, name: str) -> Exception:
    return fault(Reason.ENTRY_NOT_FOUND, f"{run.alias} has no schedule {name!r}: list them.", path=name)


def pause_schedule(tx: Transaction, address: RunRef, name: str) -> Schedule:
    """Have the times of a schedule pass without anything. Raises RUN_NOT_FOUND, ENTRY_NOT_FOUND."""
    run = get_run(tx.connection, address.project, address.run)
    row = _row_of(tx.connection, run, name)
    paused = replace(row, schedule=replace(row.schedule, paused=True), reader_turn=0)
    rows.write_schedule(tx.connection, run.id, paused)
    return _shown(tx.connection, run, name)


def resume_schedule(tx: Transaction, address: RunRef, name: str) -> Schedule:
    """Let a schedule go on from its next time. Raises RUN_NOT_FOUND, ENTRY_NOT_FOUND."""
    run = get_run(tx.connection, address.project, address.run)
    row = _row_of(tx.connection, run, name)
    if row.schedule.paused:
        schedule = replace(row.schedule, paused=False, failures=0)
        if schedule.next_ms <= tx.now_ms:
            schedule = replace(schedule, next_ms=next_time_ms(schedule, tx.now_ms))
        resumed = replace(row, schedule=schedule, due_ms=schedule.next_ms, firings=_settled(row.firings))
        rows.write_schedule(tx.connection, run.id, resumed)
    return _shown(tx.connection, run, name)


def delete_schedule(tx: Transaction, address: RunRef, name: str) -> None:
    """Remove a schedule. Raises RUN_NOT_FOUND, ENTRY_NOT_FOUND."""
    run = get_run(tx.connection, address.project, address.run)
    if not rows.delete_schedule(tx.connection, run.id, name):
        raise _not_found(run, name)


def list_schedules(connection: Connection, address: RunRef) -> list[Schedule]:
    """The schedules of a run. Raises RUN_NOT_FOUND."""
    run = get_run(connection, address.project, address.run)
    return [
        replace(row.schedule, latest=latest_runs(connection, run.project, row.firings))
        for row in rows.list_schedules(connection, run.id)
    ]


def run_due(tx: Transaction, rules: StoreRules, due: tuple[str, str, str]) -> None:
    """Run a schedule if it is still due."""
    if (found := _still_due(tx, due)) is None:
        return
    run, row = found
    if row.schedule.new_run:
        begin_run(tx, rules, run, row)
        return
    name = row.schedule.schedule_id
    schedule, turn, loop = row.schedule, run.run.turn, row.loop
    reader = row.reader_turn if turn < row.reader_turn else 0
    if schedule.next_ms <= tx.now_ms:
        _write_event(tx, rules, run, schedule, is_unread=bool(reader))
        fired = schedule.fired + 1
        schedule = replace(schedule, next_ms=next_time_ms(schedule, tx.now_ms), last_ms=schedule.next_ms, fired=fired)
        if not schedule.prompt:
            # It begins no loops, whose ends would be counted.
            schedule = replace(schedule, failures=0)
        reader = reader or (turn + 1 if schedule.prompt else 0)
    if reader and not (run.loop_active or run.run.loops_queued):
        begun = _begin(tx, rules, run, schedule, row.by)
        reader, loop = 0, begun.sequence if begun else 0
        if begun is None:
            schedule = count_failure(schedule, is_failure=True)
            if schedule.paused:
                why = f"its last {schedule.failures} loops failed, and the last one could not begin"
                event = pause_event(name, schedule.failures, why)
                write_event(tx, rules, get_run(tx.connection, run.project, run.alias), STORE.name, event)
    due_ms = min(schedule.next_ms, tx.now_ms + LOOK_AGAIN_MS) if reader else schedule.next_ms
    rows.write_schedule(tx.connection, run.id, ScheduleRow(schedule, due_ms, reader, loop, row.by))


def _readable(read: Callable[[], R | None]) -> R | None:
    """What is stored; None also if it cannot be read, which may be why a schedule has failed and is set again."""
    try:
        return read()
    except (ValueError, LookupError, TypeError):
        return None


def _still_due(tx: Transaction, due: tuple[str, str, str]) -> tuple[RunRow, ScheduleRow] | None:
    project, alias, name = due
    run = find_run(tx.connection, project, alias)
    row = rows.find_schedule(tx.connection, run.id, name) if run else None
    return (run, row) if run and row and row.due_ms <= tx.now_ms else None


def set_aside(tx: Transaction, due: tuple[str, str, str], _error: Exception) -> tuple[RunRow, int] | None:
    """Put off a schedule whose time could not be carried out, so that it holds up no other one; too many pause it.

    Returns its run and how often it has failed; None if there is no such run any more.
    """
    project, alias, name = due
    run = find_run(tx.connection, project, alias)
    if run is None:
        return None
    return run, rows.set_aside(tx.connection, run.id, name, tx.now_ms + LOOK_AGAIN_MS, FAILURES_MAX)


def _report_failure(tx: Transaction, rules: StoreRules, due: tuple[str, str, str], error: Exception) -> None:
    """As `set_aside`, with an event; a time at which no new run may begin is missed."""
    at = _readable(lambda: _still_due(tx, due))
    if at and at[1].schedule.new_run and miss_run(tx, rules, *at, error):
        return
    if (found := set_aside(tx, due, error)) is None:
        return
    run, failures = found
    words = (
        error.message.rstrip(".") if isinstance(error, TurnwrightError) else "an internal error is in the store's log"
    )
    why = f"could not be carried out: {words}"
    name = due[2]
    if failures >= FAILURES_MAX:
        event = pause_event(name, failures, f"it has failed {failures} times in a row, and this time {why}")
    else:
        payload = {"schedule_id": name, "failures": failures}
        sentence = f"The schedule {name} is due, but {why}. It is tried again."
        event = RunEvent(Subkind.SYSTEM_NOTICE, f"{_SOURCE}:{name}", payload, sentence, f"{name}_failed")
    write_event(tx, rules, run, STORE.name, event)


def _write_event(tx: Transaction, rules: StoreRules, run: RunRow, schedule: Schedule, *, is_unread: bool) -> None:
    """Write the event of a time. Times that no turn has read are one event, the latest, with their number.

    `is_unread`: a time before this one came after the latest turn had begun.
    """
    name = schedule.schedule_id
    payload = {"schedule_id": name, "time_ms": schedule.next_ms, "fired": schedule.fired + 1}
    if schedule.prompt:
        before = _unread(tx, run, name, is_unread=is_unread)
        count = 1 + (before.attributes["event"]["payload"].get("count", 1) if before else 0)
        times = f", {count} times since it was last read" if before else ""
        sentence = f"The schedule {name} says{times}: {schedule.prompt}"
        payload = {**payload, "count": count}
        event = RunEvent(Subkind.CRON_FIRE, f"{_SOURCE}:{name}", payload, sentence, name)
        if before is None:
            write_event(tx, rules, run, STORE.name, event)
        else:
            again = replace(event_write(before.turn, event), path=before.path)
            apply_writes(tx, rules, run, [again], STORE.name, is_unbounded=True)
    else:
        sentence = f"The schedule {name} has ticked {schedule.fired + 1} times."
        event = RunEvent(Subkind.TICK, f"{_SOURCE}:{name}", payload, sentence, name)
        write = event_write(turn_of_cause(run, is_owners=False), event)
        apply_writes(tx, rules, run, [write], STORE.name, is_unbounded=True)


def _unread(tx: Transaction, run: RunRow, name: str, *, is_unread: bool) -> Entry | None:
    """The latest event of a schedule that no turn has read."""
    if run.turn_open and not is_unread:
        return None
    latest = turn_of_cause(run, is_owners=False)
    # It may have been written while the latest turn, which has ended, was open.
    for turn in (latest, latest - 1) if is_unread and not run.turn_open else (latest,):
        path = event_path(turn, Subkind.CRON_FIRE, name)
        shown = list_entry_rows(tx.connection, run.id, path, "", _NUMBERED_MAX)
        taken = [one for one in shown if one.path == path or one.path.startswith(f"{path}+")]
        if taken:
            return find_entry(tx.connection, run, max(taken, key=lambda one: one.position).path)
    return None


def _begin(tx: Transaction, rules: StoreRules, run: RunRow, schedule: Schedule, by: str) -> Loop | None:
    """Queue a loop with the prompt of the schedule; None if it is refused, which an event tells."""
    settings = loop_settings(schedule.settings, latest_asked(tx, run))
    address = RunRef(run.project, run.alias)
    try:
        check_asker(rules, run.project, by)
        done = commands.enqueue_loop(tx, rules, STORE, address, schedule.prompt, settings, RunSettings(), asker=by)
    except TurnwrightError as error:
        payload = {"schedule_id": schedule.schedule_id, "reason": error.reason.name}
        sentence = f"The schedule {schedule.schedule_id} could not begin a loop: {error.message}"
        event = RunEvent(Subkind.SYSTEM_NOTICE, _SOURCE, payload, sentence, schedule.schedule_id)
        write_event(tx, rules, get_run(tx.connection, run.project, run.alias), STORE.name, event)
        return None
    return done.loop


def scheduling(database: Database, rules_now: Callable[[], StoreRules]) -> Chore:
    def run(tx: Transaction, due: tuple[str, str, str]) -> None:
        run_due(tx, rules_now(), due)

    def report(tx: Transaction, row: tuple[str, str, str], error: Exception) -> None:
        _report_failure(tx, rules_now(), row, error)

    # Behind what was found may be more schedules of the same runs.
    find, aside = partial(rows.list_due, page=ROWS_MAX), (report, set_aside)
    return row_chore("scheduling", LOOK_EVERY_S, database, find, run, more_from=1, set_aside=aside)
