"""Schedules that begin new runs: each time begins one, in the transaction in which the time passes.

So a time begins one run however often its store dies, and whichever store comes to it. What is refused leaves nothing
of the run behind: the transaction is given up, and the time passes in one of its own, as missed. Source: docs/adr/0079.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import RuleLevel, RunSettings, Schedule, ScheduledRun, ScheduleOverlap, Tier

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.events import RunEvent, Subkind, event_write
from turnwright_core.runs import LOOP_ENDED
from turnwright_kit.identity.caller import Caller, Kind
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.commands import enqueue_loop
from turnwright_store.app.inheritance import latest_asked
from turnwright_store.app.loop_rights import check_asker
from turnwright_store.app.run_events import turn_of_cause
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.schedules import (
    OVERLAP,
    Firing,
    count_failure,
    has_failed,
    loop_settings,
    missed,
    next_time_ms,
    pause_event,
    run_alias,
    with_firing,
)
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.viewers import asker_of, caller_of, viewer_in
from turnwright_store.ports import Transaction
from turnwright_store.sql import approval_rules
from turnwright_store.sql import schedules as rows
from turnwright_store.sql.loops import find_loop
from turnwright_store.sql.runs import RunRow, get_run, is_taken
from turnwright_store.sql.schedules import ScheduleRow

STORE: Final = Caller("store", Kind.SERVICE, Tier.SYSTEM)

_AGAIN: Final = (Reason.SERVICE_UNAVAILABLE, Reason.DATABASE_UNAVAILABLE)
"""What says nothing of the schedule: its time is tried again."""

_NO_FAILURE: Final = (OVERLAP, Reason.QUOTA_EXCEEDED.name)
"""Why a time may be missed without anything that is wrong with its schedule."""


def begin_run(tx: Transaction, rules: StoreRules, home: RunRow, row: ScheduleRow) -> None:
    """The next time of a schedule passes with a run that begins, or is missed because the one before still works.

    Raises TurnwrightError for a run that may not begin: see `miss_run`.
    """
    row = _with_ends_counted(tx, row)
    schedule = row.schedule
    if schedule.paused:
        rows.write_schedule(tx.connection, home.id, row)
        _report(tx, rules, home, _pause_event(schedule))
        return
    if schedule.overlap is not ScheduleOverlap.ALLOW and (at_work := _at_work(tx.connection, row.firings)):
        _miss(tx, rules, home, row, OVERLAP, f"the run {at_work} still works")
        return
    alias = run_alias(schedule, partial(is_taken, tx.connection, home.project))
    run_id = _start(tx, rules, home, row, alias)
    made = Firing(schedule.next_ms, run_id, is_open=True)
    passed = replace(_passed(tx, schedule), fired=schedule.fired + 1)
    row = replace(row, schedule=passed, due_ms=passed.next_ms, firings=with_firing(row.firings, made))
    rows.write_schedule(tx.connection, home.id, row)
    payload = {"schedule_id": schedule.schedule_id, "time_ms": schedule.next_ms, "fired": passed.fired, "run": alias}
    sentence = f"The schedule {schedule.schedule_id} has begun the run {alias}."
    event = RunEvent(
        Subkind.CRON_FIRE, f"schedule:{schedule.schedule_id}", payload, sentence, f"{schedule.schedule_id}_run"
    )
    _report(tx, rules, get_run(tx.connection, home.project, home.alias), event)


def miss_run(tx: Transaction, rules: StoreRules, home: RunRow, row: ScheduleRow, error: Exception) -> bool:
    """The next time of a schedule passes without a run, for a reason that an event tells.

    False: it does not pass, because it may begin one later.
    """
    if not isinstance(error, TurnwrightError) or error.reason in _AGAIN:
        return False
    _miss(tx, rules, home, _with_ends_counted(tx, row), error.reason.name, error.message.rstrip("."))
    return True


def latest_runs(connection: Connection, project: str, firings: Sequence[Firing]) -> tuple[ScheduledRun, ...]:
    """What became of the latest times, for whom the work is done."""
    viewer = viewer_in(project)
    found = rows.begun_runs(connection, firings)
    seen = {key: run.alias for key, run in found.items() if viewer is None or run.private_to in (None, viewer)}
    return tuple([ScheduledRun(one.time_ms, seen.get(one.run_id, ""), one.reason, one.message) for one in firings])


def _start(tx: Transaction, rules: StoreRules, home: RunRow, row: ScheduleRow, alias: str) -> int:
    """Begin a run as whoever set the schedule, with what that person may do now; returns its id."""
    check_asker(rules, home.project, row.by)
    settings = loop_settings(row.schedule.settings, latest_asked(tx, home))
    person = asker_of(row.by)
    caller = replace(caller_of(person), tier=Tier.SYSTEM) if person else STORE
    run_settings: RunSettings = replace(home.run.settings, yolo=False)
    address = RunRef(home.project, alias)
    done = enqueue_loop(
        tx, rules, caller, address, row.schedule.prompt, settings, run_settings, is_new=True, asker=row.by
    )
    for rule in approval_rules.list_rules(tx.connection, home.project_id, home.id):
        if rule.rule.level is RuleLevel.RUN:
            approval_rules.add_rule(tx.connection, home.project_id, done.row.id, rule)
    return done.row.id


def _with_ends_counted(tx: Transaction, row: ScheduleRow) -> ScheduleRow:
    """With the ends of the runs that have ended since the time before."""
    runs = rows.begun_runs(tx.connection, [one for one in row.firings if one.is_open])
    schedule, firings = row.schedule, list(row.firings)
    for place in reversed(range(len(firings))):
        firing = firings[place]
        if not firing.is_open:
            continue
        loop = find_loop(tx.connection, firing.run_id, 1) if firing.run_id in runs else None
        if loop and loop.status not in LOOP_ENDED:
            continue
        firings[place] = replace(firing, is_open=False)
        if loop and (is_failure := has_failed(loop.status, loop.reason)) is not None:
            schedule = count_failure(schedule, is_failure=is_failure)
    return replace(row, schedule=schedule, firings=tuple(firings))


def _at_work(connection: Connection, firings: Sequence[Firing]) -> str:
    """The alias of the latest run that still works; empty: none."""
    runs = rows.begun_runs(connection, firings)
    at_work = (run.alias for one in firings if (run := runs.get(one.run_id)) and run.is_working)
    return next(at_work, "")


def _miss(tx: Transaction, rules: StoreRules, home: RunRow, row: ScheduleRow, reason: str, why: str) -> None:
    schedule = row.schedule
    name, time = schedule.schedule_id, datetime.fromtimestamp(schedule.next_ms / 1000, UTC)
    passed = _passed(tx, schedule)
    if reason not in _NO_FAILURE:
        passed = count_failure(passed, is_failure=True)
    firings = with_firing(row.firings, missed(schedule.next_ms, reason, why))
    row = replace(row, schedule=passed, due_ms=passed.next_ms, firings=firings)
    rows.write_schedule(tx.connection, home.id, row)
    payload = {"schedule_id": name, "time_ms": schedule.next_ms, "reason": reason}
    sentence = f"The schedule {name} has begun no run at {time:%Y-%m-%d %H:%M:%S} UTC: {why}."
    _report(tx, rules, home, RunEvent(Subkind.SYSTEM_NOTICE, f"schedule:{name}", payload, sentence, f"{name}_missed"))
    if passed.paused:
        _report(tx, rules, get_run(tx.connection, home.project, home.alias), _pause_event(passed))


def _passed(tx: Transaction, schedule: Schedule) -> Schedule:
    return replace(schedule, next_ms=next_time_ms(schedule, tx.now_ms), last_ms=schedule.next_ms)


def _pause_event(schedule: Schedule) -> RunEvent:
    why = f"its last {schedule.failures} runs failed or could not begin"
    return pause_event(schedule.schedule_id, schedule.failures, why)


def _report(tx: Transaction, rules: StoreRules, home: RunRow, event: RunEvent) -> None:
    """Write an event in the place of the one before that no turn has read, so that a run at rest does not fill up."""
    write = event_write(turn_of_cause(home, is_owners=False), event)
    apply_writes(tx, rules, home, [write], STORE.name, is_unbounded=True)
