"""`schedules list`, `schedules add` and `schedules remove`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from rich.text import Text
from turnwright.types.v1 import schedule_pb2

from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import console, put, show_lines
from turnwright_cli.plain import safe_line
from turnwright_cli.reading import given_text
from turnwright_cli.run_names import open_run
from turnwright_cli.tables import Column, show_table
from turnwright_core.limits import COMMENT_BYTES_MAX

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PROMPT_CHARS: Final = 60


async def list_schedules(call: Invocation, *, run: str) -> int:
    async with open_run(call, run, reads=True) as (client, project, found):
        schedules = await client.list_schedules(project, found.run)
    if call.as_json:
        return show_lines(schedules)
    show_table(
        (*map(Column, ("id", "when", "next (UTC)", "last (UTC)", "times")), Column("prompt", _PROMPT_CHARS)),
        (
            (one.schedule_id, _rule(one), _time(one.next_time), _time(one.last_time), str(one.fired), one.prompt)
            for one in schedules
        ),
        empty=f"{found.run} has no schedules. Add one with `turnwright schedules add RUN ID --every TIME [PROMPT]`.",
    )
    return 0


async def add_schedule(call: Invocation, *, run: str, schedule_id: str, prompt: str, cron: str, every: str) -> int:
    if bool(cron) == bool(every):
        raise usage("Say when: by --cron or by --every, one of them.")
    every_s = _seconds(every) if every else 0
    text = given_text(prompt, "prompt", COMMENT_BYTES_MAX) if prompt else ""
    async with open_run(call, run) as (client, project, found):
        made = await client.set_schedule(project, found.run, schedule_id, cron=cron, every_s=every_s, prompt=text)
    if call.as_json:
        return show_lines([made])
    put(console(), Text(f"{made.schedule_id}: {safe_line(_rule(made))}, next {_time(made.next_time)} UTC"))
    return 0


async def remove_schedule(call: Invocation, *, run: str, schedule_id: str) -> int:
    async with open_run(call, run) as (client, project, found):
        await client.remove_schedule(project, found.run, schedule_id)
        if call.as_json:
            return show_lines(await client.list_schedules(project, found.run))
    put(console(), Text(f"{safe_line(schedule_id)}: removed"))
    return 0


def _seconds(text: str) -> int:
    """A time such as 90s or 10m. Raises FailureError."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if not found or not int(found[1]):
        raise usage(f"--every takes a whole number with s, m, h or d, such as 10m, and not {safe_line(text)!r}.")
    return int(found[1]) * _SECONDS[found[2]]


def _rule(one: schedule_pb2.Schedule) -> str:
    """When it happens, as --cron or --every takes it."""
    if one.cron:
        return one.cron
    unit = max((unit for unit, size in _SECONDS.items() if one.every_s % size == 0), key=_SECONDS.__getitem__)
    return f"{one.every_s // _SECONDS[unit]}{unit}"


def _time(time: Timestamp) -> str:
    return datetime.fromtimestamp(time.seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if time.seconds else ""
