"""Schedules whose loops fail: each end is counted in the transaction that ends the loop, and too many pause them.

An event tells that, and SetSchedule lets it go on. Source: decision C62.
"""

from __future__ import annotations

from msgspec.structs import replace
from turnwright_values.store import EntryWrite, LoopEnd
from turnwright_values.types import Loop

from turnwright_core.events import RunEvent, Subkind
from turnwright_store.app.run_events import new_event
from turnwright_store.domain.schedules import FAILURES_MAX, Schedule, failed
from turnwright_store.ports import Transaction
from turnwright_store.sql import schedules as rows
from turnwright_store.sql.runs import RunRow


def count_end(tx: Transaction, run: RunRow, loop: Loop, end: LoopEnd) -> list[EntryWrite]:
    """Count the end of a loop for the schedule that has begun it; the event, if that is paused now."""
    if not loop.settings.synthetic:
        return []
    is_failure = failed(end.status, end.reason)
    row = next((one for one in rows.list_schedules(tx.connection, run.id) if one.loop == loop.sequence), None)
    if row is None or is_failure is None:
        return []
    schedule = counted(row.schedule, is_failure=is_failure)
    rows.write_schedule(tx.connection, run.id, replace(row, schedule=schedule, loop=0))
    ending = f"{end.status}, {end.reason}" if end.reason else f"{end.status}"
    why = f"its last {schedule.failures} loops failed, the last one with {ending}"
    event = paused(schedule.schedule_id, schedule.failures, why)
    return [new_event(tx, run, run.turn, event)] if schedule.paused else []


def counted(schedule: Schedule, *, is_failure: bool) -> Schedule:
    """The schedule after the end of another loop; paused if that was one failure too many."""
    failures = schedule.failures + 1 if is_failure else 0
    return replace(schedule, failures=failures, paused=failures >= FAILURES_MAX)


def paused(name: str, failures: int, why: str) -> RunEvent:
    """The event that a schedule is paused after so many failures."""
    sentence = f"The schedule {name} is paused: {why}. Set it again to go on."
    payload = {"schedule_id": name, "failures": failures, "paused": True}
    return RunEvent(Subkind.SYSTEM_NOTICE, f"schedule:{name}", payload, sentence, f"{name}_paused")
