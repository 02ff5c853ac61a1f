"""`plan show`, `plan set`, `plan update` and `plan rm`: the plans of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from click import UsageError
from rich.text import Text
from turnwright.types.v1 import plan_pb2

from turnwright_cli.invocation import Invocation
from turnwright_cli.output import console, put, show_lines
from turnwright_cli.plain import safe_line
from turnwright_cli.plan_words import kind_word, plan_lines, plan_title, priority_word, status_word
from turnwright_cli.reading import given_text, text_in
from turnwright_cli.run_list import open_run
from turnwright_cli.tables import Column, show_table
from turnwright_core.limits import PLAN_BODY_BYTES_MAX, PLAN_DELTA_BYTES_MAX

_COLUMNS: Final = ("plan", "version", "mode", "part", "status", "priority", "text", "evidence")


async def show_plans(call: Invocation, *, run: str, plan_id: str, version: int) -> int:
    async with open_run(call, run, reads=True) as (client, project, found):
        if plan_id or version:
            plans = [await client.get_plan(project, found.run, plan_id=plan_id, version=version)]
        else:
            plans = [plan async for plan in client.list_plans(project, found.run)]
    if call.as_json:
        return show_lines(plans)
    out = console()
    if plans and out.is_terminal:
        for plan in plans:
            for line in plan_lines(plan):
                put(out, line)
        return 0
    alias = safe_line(found.run)
    empty = f"No plans in run {alias} yet. Set one with `turnwright plan set {alias} TEXT`."
    show_table(tuple(map(Column, _COLUMNS)), [row for plan in plans for row in _rows(plan)], empty=empty)
    return 0


def _rows(plan: plan_pb2.Plan) -> Iterator[tuple[str, ...]]:
    """A row for each item, or one for the whole text or a list without items; then one for each delta."""
    begin = (plan.plan_id, str(plan.version), plan.mode)
    if not plan.items:
        text = "" if plan.kind == plan_pb2.PLAN_KIND_ITEMS else plan.body
        yield (*begin, kind_word(plan), "", "", text, "")
    for item in plan.items:
        yield (*begin, "item", status_word(item), priority_word(item), item.content, " ".join(item.evidence_paths))
    for delta in plan.deltas:
        yield (*begin, "delta", "", "", delta.text, "")


async def set_plan(
    call: Invocation, *, run: str, text: str | None, file: Path | None, items: str | None, mode: str, plan_id: str
) -> int:
    wanted = _given(text, file, items)
    wanted.plan_id, wanted.mode = plan_id, mode
    async with open_run(call, run) as (client, project, found):
        stored = await client.set_plan(project, found.run, wanted)
    return _say(call, stored, plan_title(stored))


def _given(text: str | None, file: Path | None, items: str | None) -> plan_pb2.Plan:
    """The plan from whichever of the three was given. Raises UsageError, FailureError."""
    if [text, file, items].count(None) != 2:
        raise UsageError("Give the plan as TEXT, with --file or with --items: one of them.")
    if items is not None:
        body = given_text(items, "list of items", PLAN_BODY_BYTES_MAX)
        return plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_ITEMS, body=body)
    return plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_MARKDOWN, body=_text(text, file, "plan", PLAN_BODY_BYTES_MAX))


def _text(text: str | None, file: Path | None, what: str, bytes_max: int) -> str:
    return text_in(file, what, bytes_max) if file is not None else given_text(text or "", what, bytes_max)


async def update_plan(call: Invocation, *, run: str, text: str | None, file: Path | None, plan_id: str) -> int:
    if [text, file].count(None) != 1:
        raise UsageError("Give what to add as TEXT or with --file.")
    delta = _text(text, file, "delta", PLAN_DELTA_BYTES_MAX)
    async with open_run(call, run) as (client, project, found):
        stored = await client.update_plan(project, found.run, delta, plan_id=plan_id)
    return _say(call, stored, plan_title(stored))


async def remove_plan(call: Invocation, *, run: str, plan_id: str) -> int:
    async with open_run(call, run) as (client, project, found):
        plan = await client.get_plan(project, found.run, plan_id=plan_id)
        await client.remove_plan(project, found.run, plan_id=plan_id)
    shown = f"turnwright plan show {safe_line(found.run)} --plan-id {safe_line(plan.plan_id)} --version {plan.version}"
    return _say(call, plan, f"plan {safe_line(plan.plan_id)}: removed; `{shown}` still shows it")


def _say(call: Invocation, plan: plan_pb2.Plan, words: str) -> int:
    if call.as_json:
        return show_lines([plan])
    put(console(), Text(words))
    return 0
