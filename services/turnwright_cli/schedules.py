"""`schedules`: what the agent does again and again, without anybody who asks."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.types.v1 import schedule_pb2, settings_pb2

from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation, budget_of
from turnwright_cli.lists import budget_words
from turnwright_cli.output import Column, answer, enum_word, show_list
from turnwright_cli.plain import safe_line
from turnwright_cli.reading import given_text
from turnwright_cli.run_list import TITLE_CHARS, open_run
from turnwright_core.limits import COMMENT_BYTES_MAX

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


async def list_schedules(call: Invocation, *, run: str) -> int:
    async with open_run(call, run, reads=True) as (client, project, found):
        schedules = await client.list_schedules(project, found.run)
    return show_list(
        call,
        schedules,
        _COLUMNS,
        empty=f"{found.run} has no schedules. Add one with `turnwright schedules add RUN ID --every TIME [PROMPT]`.",
    )


async def add_schedule(
    call: Invocation,
    *,
    run: str,
    schedule_id: str,
    prompt: str,
    cron: str,
    tz: str,
    every: str,
    mode: str | None,
    model: str,
    yolo: bool,
    new_run: bool,
    overlap: bool,
    without: Collection[str],
    **limits: object,
) -> int:
    if bool(cron) == bool(every):
        raise usage("Say when: by --cron or by --every, one of them.")
    if overlap and not new_run:
        raise usage("--overlap is for --new-run: say both.")
    interval = timedelta(seconds=_seconds(every)) if every else None
    text = given_text(prompt, "prompt", COMMENT_BYTES_MAX) if prompt else ""
    settings = settings_pb2.LoopSettings(
        mode=settings_pb2.Mode.Value(f"MODE_{(mode or 'unspecified').upper()}"),
        model=model,
        yolo=yolo,
        budget=budget_of(**limits),
        no_repo="repo" in without,
        no_web="web" in without,
        no_interaction="interaction" in without,
        no_proposals="proposals" in without,
    )
    own = settings if settings.ListFields() else None
    async with open_run(call, run) as (client, project, found):
        made = await client.set_schedule(
            project,
            found.run,
            schedule_id,
            cron=cron,
            time_zone=tz,
            every=interval,
            prompt=text,
            settings=own,
            new_run=new_run,
            overlap=schedule_pb2.SCHEDULE_OVERLAP_ALLOW if overlap else schedule_pb2.SCHEDULE_OVERLAP_UNSPECIFIED,
        )
    return answer(call, [made], f"{made.schedule_id}: {safe_line(_rule(made))}, next {_time(made.next_time)} UTC")


async def pause_schedule(call: Invocation, *, run: str, schedule_id: str) -> int:
    async with open_run(call, run) as (client, project, found):
        paused = await client.pause_schedule(project, found.run, schedule_id)
    return answer(call, [paused], f"{safe_line(schedule_id)}: paused")


async def resume_schedule(call: Invocation, *, run: str, schedule_id: str) -> int:
    async with open_run(call, run) as (client, project, found):
        going = await client.resume_schedule(project, found.run, schedule_id)
    return answer(call, [going], f"{safe_line(schedule_id)}: goes on, next {_time(going.next_time)} UTC")


async def list_scheduled(call: Invocation, *, run: str, schedule_id: str) -> int:
    """What became of the latest times of a schedule."""
    async with open_run(call, run, reads=True) as (client, project, found):
        schedules = await client.list_schedules(project, found.run)
    one = next((each for each in schedules if each.schedule_id == schedule_id), None)
    if one is None:
        raise usage(f"{safe_line(found.run)} has no schedule {safe_line(schedule_id)!r}: list them.")
    return show_list(call, one.latest, _RUN_COLUMNS, empty=f"{safe_line(schedule_id)} has begun no run yet.")


async def remove_schedule(call: Invocation, *, run: str, schedule_id: str) -> int:
    async with open_run(call, run) as (client, project, found):
        await client.delete_schedule(project, found.run, schedule_id)
        left = await client.list_schedules(project, found.run) if call.as_json else ()
    return answer(call, left, f"{safe_line(schedule_id)}: removed")


def _seconds(text: str) -> int:
    """A time such as 90s or 10m. Raises FailureError."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= 365 * _SECONDS["d"]:
        rule = "a whole number with s, m, h or d, such as 10m, and at most 365d"
        raise usage(f"--every takes {rule}, not {safe_line(text)!r}.")
    return seconds


def _rule(one: schedule_pb2.Schedule) -> str:
    """When it happens, as --cron or --every takes it."""
    if one.cron:
        return f"{one.cron} {one.time_zone}".rstrip()
    unit = max((unit for unit, size in _SECONDS.items() if one.every.seconds % size == 0), key=_SECONDS.__getitem__)
    return f"{one.every.seconds // _SECONDS[unit]}{unit}"


def _own(one: schedule_pb2.Schedule) -> str:
    own = one.settings
    mode = enum_word(settings_pb2.Mode.DESCRIPTOR, own.mode)
    without = [f"no {what}" for what in ("repo", "web", "interaction", "proposals") if getattr(own, f"no_{what}")]
    budget = budget_words(own.budget) if own.HasField("budget") else ""
    begins = "new run" if one.new_run else ""
    return ", ".join(filter(None, [begins, mode, safe_line(own.model), "yolo" if own.yolo else "", *without, budget]))


def _next(one: schedule_pb2.Schedule) -> str:
    if one.paused:
        return f"paused: {one.failures} failed" if one.failures else "paused"
    return _time(one.next_time)


def _time(time: Timestamp) -> str:
    return datetime.fromtimestamp(time.seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if time.seconds else ""


_COLUMNS: Final[Sequence[Column[schedule_pb2.Schedule]]] = (
    Column("id", lambda one: one.schedule_id),
    Column("when", _rule),
    Column("next (UTC)", _next),
    Column("last (UTC)", lambda one: _time(one.last_time)),
    Column("times", lambda one: str(one.fired)),
    Column("with", _own),
    Column("prompt", lambda one: one.prompt, TITLE_CHARS),
)

_RUN_COLUMNS: Final[Sequence[Column[schedule_pb2.ScheduledRun]]] = (
    Column("time (UTC)", lambda one: _time(one.time)),
    Column("run", lambda one: one.run or ("" if one.reason else "removed")),
    Column("why not", lambda one: one.message),
)
