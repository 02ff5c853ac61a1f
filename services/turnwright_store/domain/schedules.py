"""Schedules of runs: when they happen next, and when failures pause them.

Source: rows RE07, RH04; decision C62; docs/adr/0079.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, tzinfo
from itertools import count
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import LoopSettings, Schedule, ScheduleOverlap

from turnwright_core.checks import check_bytes, invalid
from turnwright_core.events import RunEvent, Subkind
from turnwright_core.limits import COMMENT_BYTES_MAX
from turnwright_core.runs import ABORTED, REJECTED, STATUSES
from turnwright_core.suggestions import did_you_mean
from turnwright_store.domain.checks import check_name
from turnwright_store.domain.settings_patch import queued_settings

SCHEDULE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

EVERY_S_MAX: Final = 365 * 24 * 3600
"""Longest interval, in seconds."""

CRON_FIELDS: Final = 5

FAILURES_MAX: Final = 5
"""Loops of a schedule that fail in a row before it is paused."""

FIRINGS_MAX: Final = 10
"""Latest times of which a schedule that begins new runs keeps what became of them."""

OVERLAP: Final = "OVERLAP"
"""Why no run began: the one before still works."""

_MESSAGE_CHARS_MAX: Final = 500


class Firing(Struct, frozen=True, array_like=True):
    """What became of one time of a schedule that begins new runs, as it is stored."""

    time_ms: int
    run_id: int = 0
    """The run that began; 0: none."""
    reason: str = ""
    message: str = ""
    is_open: bool = False
    """Whether the end of its run is yet to be counted."""


def missed(time_ms: int, reason: str, message: str) -> Firing:
    return Firing(time_ms, 0, reason, message[:_MESSAGE_CHARS_MAX])


def with_firing(firings: Iterable[Firing], firing: Firing) -> tuple[Firing, ...]:
    """The latest times, with another one."""
    return (firing, *firings)[:FIRINGS_MAX]


def run_alias(schedule: Schedule, is_taken: Callable[[str], bool]) -> str:
    """The alias of the run that begins at the next time of a schedule."""
    time = datetime.fromtimestamp(schedule.next_ms / 1000, UTC)
    alias = f"{schedule.schedule_id}-{time:%Y%m%dT%H%M%SZ}"
    if not is_taken(alias):
        return alias
    return next(made for number in count(2) if not is_taken(made := f"{alias}-{number}"))


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
    return replace(schedule, failures=failures, paused=schedule.paused or failures >= FAILURES_MAX)


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
    if schedule.time_zone:
        _check_zone(schedule)
    if schedule.new_run and not schedule.prompt:
        raise invalid("schedule.prompt", "A schedule that begins new runs needs a prompt: say what they are to do.")
    if schedule.overlap and not schedule.new_run:
        raise invalid(
            "schedule.overlap", "overlap is for a schedule that begins new runs: set new_run, or leave it out."
        )
    asked = Schedule(
        schedule.schedule_id,
        schedule.cron,
        int(schedule.every_s),
        schedule.prompt,
        settings=schedule.settings,
        time_zone=schedule.time_zone,
        new_run=schedule.new_run,
        overlap=schedule.overlap or (ScheduleOverlap.SKIP if schedule.new_run else ScheduleOverlap.UNSPECIFIED),
    )
    return replace(asked, next_ms=next_time_ms(asked, now_ms))


def _check_zone(schedule: Schedule) -> None:
    # Few schedules have one.
    from zoneinfo import available_timezones  # noqa: PLC0415

    if not schedule.cron:
        raise invalid("schedule.time_zone", "time_zone is for cron: leave it out with every.")
    name = schedule.time_zone[:100]
    known = available_timezones()
    if name not in known:
        by_fold = {one.casefold(): one for one in sorted(known)}
        near = by_fold.get(name.casefold())
        hint = f" (did you mean {near}?)" if near else did_you_mean(name, sorted(known))
        raise invalid(
            "schedule.time_zone",
            f"There is no time zone {name!r}{hint}. Name one of the IANA time zone database, such as Europe/Berlin.",
        )


def next_time_ms(schedule: Schedule, now_ms: int) -> int:
    """The first time after now; times that have passed are left out. Raises INVALID_FIELD."""
    if schedule.every_s:
        step = int(schedule.every_s) * 1000
        begin = schedule.next_ms or now_ms
        return begin + step * max(1, (now_ms - begin) // step + 1)
    return _next_by_cron(schedule.cron, _zone(schedule.time_zone), now_ms)


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 - few schedules have one

    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError):
        raise invalid(
            "schedule.time_zone", f"There is no time zone {name!r} any more: set the schedule again."
        ) from None


def _next_by_cron(cron: str, zone: tzinfo, now_ms: int) -> int:
    # Few stores have schedules.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    if len(cron.split()) != CRON_FIELDS:
        raise invalid("schedule.cron", f"cron must have five fields, such as `0 3 * * 1-5`; it is {cron[:100]!r}.")
    try:
        # In the second of two hours that a change of clocks makes one, it begins with those of the first.
        later = (
            time_ms
            for time in CronSim(cron, datetime.fromtimestamp(now_ms / 1000, zone))
            if (time_ms := int(time.timestamp() * 1000)) > now_ms
        )
        found = next(later, None)
    except CronSimError as error:
        raise invalid("schedule.cron", f"{cron[:100]!r} cannot be read as a cron expression: {error}.") from None
    if found is None:
        raise invalid("schedule.cron", f"{cron[:100]!r} names no time of the next fifty years.")
    return found
