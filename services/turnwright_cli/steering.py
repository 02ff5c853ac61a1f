"""`fork`, `rename`, `inject`, `config`, `project` and `runs remove`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.types.v1 import run_pb2, schedule_pb2, settings_pb2
from turnwright_values.types import Assembly

from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation, budget_of, call_style
from turnwright_cli.lists import budget_words, call_words
from turnwright_cli.output import Column, answer, enum_word, show_list
from turnwright_cli.plain import safe_line
from turnwright_cli.reading import given_text, text_in
from turnwright_cli.run_list import TITLE_CHARS, open_run
from turnwright_cli.session import open_session
from turnwright_cli.status_words import run_words
from turnwright_core.limits import COMMENT_BYTES_MAX, PERSONA_BYTES_MAX


async def fork_run(call: Invocation, *, run: str, to: str, turn: int) -> int:
    async with open_run(call, run) as (client, project, found):
        made = await client.fork_run(project, found.run, new_run=to, turn=turn)
    return answer(call, [made], _words(made, f"forked from {found.run} after turn {made.forked_from.turn}"))


async def rename_run(call: Invocation, *, run: str, new: str) -> int:
    async with open_run(call, run) as (client, project, found):
        renamed = await client.rename_run(project, found.run, new)
    return answer(call, [renamed], _words(renamed, f"it was {found.run}"))


async def inject_message(call: Invocation, *, run: str, message: str) -> int:
    text = given_text(message, "message", COMMENT_BYTES_MAX)
    async with open_run(call, run) as (client, project, found):
        injected = await client.inject_message(project, found.run, text)
    return answer(call, [injected], _words(injected.run, "the model reads it in its next turn"))


async def remove_run(call: Invocation, *, run: str) -> int:
    async with open_run(call, run) as (client, project, found):
        await client.delete_run(project, found.run)
    return answer(call, [found], _words(found, "removed"))


async def configure_run(
    call: Invocation,
    *,
    run: str,
    model: str | None,
    temperature: float | None,
    persona_file: Path | None,
    context_limit: int | None,
    yolo: bool | None,
    calls: str | None,
    title: str | None,
    **limits: object,
) -> int:
    patch = settings_pb2.RunSettingsPatch(
        model=model,
        temperature=temperature,
        context_limit=context_limit,
        persona=text_in(persona_file, "persona", PERSONA_BYTES_MAX, may_be_empty=True) if persona_file else None,
        budget=budget_of(**limits),
        yolo=yolo,
        calls=call_style(calls),
        title=title,
    )
    changes = bool(patch.ListFields())
    async with open_run(call, run, reads=not changes) as (client, project, found):
        changed = await client.configure_run(project, found.run, patch) if changes else found
    return answer(call, [changed], *settings_lines(changed.settings))


async def configure_project(call: Invocation, *, assembly: str | None, force: bool) -> int:
    wanted = {
        "packet": settings_pb2.ASSEMBLY_PACKET,
        "transcript": settings_pb2.ASSEMBLY_TRANSCRIPT,
        "default": settings_pb2.ASSEMBLY_UNSPECIFIED,
    }
    async with open_session(call.settings) as session:
        project = await session.client.init_project(call.root, assembly=wanted.get(assembly or ""), force=force)
    chosen = Assembly(project.assembly).name.lower() if project.assembly else "default"
    names = f"project   {safe_line(project.name)}", f"root      {safe_line(project.root)}"
    return answer(call, [project], *names, f"assembly  {chosen}")


def settings_lines(settings: settings_pb2.RunSettings) -> list[str]:
    persona = safe_line(settings.persona, TITLE_CHARS) if settings.HasField("persona") else "built in"
    return [
        f"model          {safe_line(settings.model)}",
        f"temperature    {settings.temperature:g}" if settings.HasField("temperature") else "temperature    default",
        f"persona        {persona}",
        f"context limit  {settings.context_limit:,}"
        if settings.HasField("context_limit")
        else "context limit  model's",
        f"budget         {budget_words(settings.budget)}",
        f"yolo           {'yes' if settings.yolo else 'no'}",
        f"calls          {call_words(settings.calls)}",
        f"title          {safe_line(settings.title) or 'default'}",
    ]


def _words(run: run_pb2.Run, what: str) -> str:
    return f"{safe_line(run.run)}: {run_words(run, knows_holder=False)}; {safe_line(what)}"


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
    every: str,
    mode: str | None,
    model: str,
    yolo: bool,
    without: Collection[str],
    **limits: object,
) -> int:
    if bool(cron) == bool(every):
        raise usage("Say when: by --cron or by --every, one of them.")
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
            project, found.run, schedule_id, cron=cron, every=interval, prompt=text, settings=own
        )
    return answer(call, [made], f"{made.schedule_id}: {safe_line(_rule(made))}, next {_time(made.next_time)} UTC")


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
        return one.cron
    unit = max((unit for unit, size in _SECONDS.items() if one.every.seconds % size == 0), key=_SECONDS.__getitem__)
    return f"{one.every.seconds // _SECONDS[unit]}{unit}"


def _own(one: schedule_pb2.Schedule) -> str:
    """What its loops have of their own."""
    own = one.settings
    mode = enum_word(settings_pb2.Mode.DESCRIPTOR, own.mode)
    without = [f"no {what}" for what in ("repo", "web", "interaction", "proposals") if getattr(own, f"no_{what}")]
    budget = budget_words(own.budget) if own.HasField("budget") else ""
    return ", ".join(filter(None, [mode, safe_line(own.model), "yolo" if own.yolo else "", *without, budget]))


def _time(time: Timestamp) -> str:
    return datetime.fromtimestamp(time.seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if time.seconds else ""


_COLUMNS: Final[Sequence[Column[schedule_pb2.Schedule]]] = (
    Column("id", lambda one: one.schedule_id),
    Column("when", _rule),
    Column("next (UTC)", lambda one: f"paused: {one.failures} failed" if one.paused else _time(one.next_time)),
    Column("last (UTC)", lambda one: _time(one.last_time)),
    Column("times", lambda one: str(one.fired)),
    Column("with", _own),
    Column("prompt", lambda one: one.prompt, TITLE_CHARS),
)
