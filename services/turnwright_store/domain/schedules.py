"""Schedules of runs: when they happen next, and when failures pause them. Source: rows RE07, RH04; decision C62."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace
from turnwright_values.types import LoopSettings, Schedule

from turnwright_core.checks import check_bytes, invalid
from turnwright_core.events import RunEvent, Subkind
from turnwright_core.limits import COMMENT_BYTES_MAX
from turnwright_core.runs import ABORTED, REJECTED, STATUSES
from turnwright_store.domain.checks import check_name
from turnwright_store.domain.settings_patch import queued_settings

SCHEDULE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

EVERY_S_MAX: Final = 365 * 24 * 3600
"""Longest interval, in seconds."""

CRON_FIELDS: Final = 5

FAILURES_MAX: Final = 5
"""Loops of a schedule that fail in a row before it is paused."""


def loop_settings(own: LoopSettings | None, asked: LoopSettings) -> LoopSettings:
    """The settings of the loops of a schedule: its own, and for the rest what was asked of its task (C62)."""
    if own is None:
        return replace(asked, synthetic=True)
    settings = replace(
        own,
        mode=own.mode or asked.mode,
        model=own.model or asked.model,
        no_repo=own.no_repo or asked.no_repo,
        no_interaction=own.no_interaction or asked.no_interaction,
        no_web=own.no_web or asked.no_web,
        no_proposals=own.no_proposals or asked.no_proposals,
        budget=asked.budget if own.budget is None else own.budget,
        reasoning=own.reasoning or asked.reasoning,
        assembly=own.assembly or asked.assembly,
        project_instructions=(
            asked.project_instructions if own.project_instructions is None else own.project_instructions
        ),
        summaries=asked.summaries if own.summaries is None else own.summaries,
        synthetic=True,
    )
    return queued_settings(settings, model_of_run=not own.model)


def has_failed(status: int, reason: str) -> bool | None:
    """Whether a loop that ended in this way has failed; None if a person ended it, which says nothing of it."""
    if STATUSES[status].exit_code == 0:
        return False
    return None if status == ABORTED and reason in (REJECTED, "aborted") else True


def count_failure(schedule: Schedule, *, is_failure: bool) -> Schedule:
    """The schedule after the end of another loop; paused if that was one failure too many."""
    failures = schedule.failures + 1 if is_failure else 0
    return replace(schedule, failures=failures, paused=failures >= FAILURES_MAX)


def pause_event(name: str, failures: int, why: str) -> RunEvent:
    """The event that a schedule is paused after so many failures."""
    sentence = f"The schedule {name} is paused: {why}. Set it again to go on."
    payload = {"schedule_id": name, "failures": failures, "paused": True}
    return RunEvent(Subkind.SYSTEM_NOTICE, f"schedule:{name}", payload, sentence, f"{name}_paused")


def check_schedule(schedule: Schedule, now_ms: int) -> Schedule:
    """The schedule with its next time. Raises INVALID_FIELD, LIMIT_EXCEEDED."""
    check_name("schedule.schedule_id", schedule.schedule_id, SCHEDULE_ID)
    check_bytes("schedule.prompt", schedule.prompt, COMMENT_BYTES_MAX)
    if schedule.prompt and not schedule.prompt.strip():
        raise invalid("schedule.prompt", "The prompt is blank: leave it empty for a tick, or say what to do.")
    if bool(schedule.cron) == bool(schedule.every_s):
        raise invalid("schedule.cron", "Say when by cron or by every: one of them, not both.")
    if schedule.every_s and schedule.every_s not in range(1, EVERY_S_MAX + 1):
        rule = f"every must be 1 to {EVERY_S_MAX} whole seconds"
        raise invalid("schedule.every", f"{rule}; it is {schedule.every_s:g} s.")
    if schedule.settings and not schedule.prompt:
        raise invalid("schedule.settings", "A schedule without a prompt begins no loops: leave its settings out.")
    every_s = int(schedule.every_s)
    asked = Schedule(schedule.schedule_id, schedule.cron, every_s, schedule.prompt, settings=schedule.settings)
    return replace(asked, next_ms=next_time_ms(asked, now_ms))


def next_time_ms(schedule: Schedule, now_ms: int) -> int:
    """The first time after now; times that have passed are left out. Raises INVALID_FIELD."""
    if schedule.every_s:
        step = int(schedule.every_s) * 1000
        begin = schedule.next_ms or now_ms
        return begin + step * max(1, (now_ms - begin) // step + 1)
    return _next_by_cron(schedule.cron, now_ms)


def _next_by_cron(cron: str, now_ms: int) -> int:
    # Few stores have schedules.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    if len(cron.split()) != CRON_FIELDS:
        raise invalid("schedule.cron", f"cron must have five fields, such as `0 3 * * 1-5`; it is {cron[:100]!r}.")
    try:
        found = next(CronSim(cron, datetime.fromtimestamp(now_ms / 1000, UTC)), None)
    except CronSimError as error:
        raise invalid("schedule.cron", f"{cron[:100]!r} cannot be read as a cron expression: {error}.") from None
    if found is None:
        raise invalid("schedule.cron", f"{cron[:100]!r} names no time of the next fifty years.")
    return int(found.timestamp() * 1000)
