"""`plan show`, `plan set`, `plan update` and `plan rm`: the plans of a run.

Source: architecture 9, 15.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Final

from google.protobuf.message import Message
from rich.text import Text
from turnwright.types.v1 import plan_pb2

from turnwright_cli.config import CliSettings
from turnwright_cli.json_lines import to_line
from turnwright_cli.output import console, put, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.plan_words import kind_word, plan_lines, plan_title, priority_word, status_word
from turnwright_cli.session import open_session
from turnwright_cli.tables import Column, show_table

_COLUMNS: Final = ("plan", "version", "mode", "part", "status", "priority", "text", "evidence")


async def show_plans(
    settings: CliSettings, project: str, run: str, plan_id: str, version: int, *, as_json: bool
) -> int:
    """All plans of a run as they are now, or one of them, in any version."""
    async with open_session(settings) as session:
        client, name = session.client, (await session.client.init_project(project)).name
        if plan_id or version:
            plans = [await client.get_plan(name, run, plan_id=plan_id, version=version)]
        else:
            plans = [plan async for plan in client.list_plans(name, run)]
    if as_json:
        return _json_lines(plans)
    out = console()
    if plans and out.is_terminal:
        for plan in plans:
            for line in plan_lines(plan):
                put(out, line)
        return 0
    empty = f"No plans in run {safe_line(run)} yet. Set one with `turnwright plan set {safe_line(run)} TEXT`."
    show_table(tuple(map(Column, _COLUMNS)), [row for plan in plans for row in _rows(plan)], empty=empty)
    return 0


def _rows(plan: plan_pb2.Plan) -> Iterator[tuple[str, ...]]:
    """A row for each item, or one for the whole text; then one for each delta."""
    begin = (plan.plan_id, str(plan.version), plan.mode)
    if plan.kind != plan_pb2.PLAN_KIND_ITEMS:
        yield (*begin, kind_word(plan), "", "", plan.body, "")
    for item in plan.items:
        yield (*begin, "item", status_word(item), priority_word(item), item.content, " ".join(item.evidence_paths))
    for delta in plan.deltas:
        yield (*begin, "delta", "", "", delta.text, "")


async def set_plan(settings: CliSettings, project: str, run: str, plan: plan_pb2.Plan, *, as_json: bool) -> int:
    async with open_session(settings) as session:
        name = (await session.client.init_project(project)).name
        stored = await session.client.set_plan(name, run, plan, secrets.token_hex(16))
    return _say(stored, plan_title(stored), as_json=as_json)


async def update_plan(settings: CliSettings, project: str, run: str, plan_id: str, delta: str, *, as_json: bool) -> int:
    async with open_session(settings) as session:
        name = (await session.client.init_project(project)).name
        stored = await session.client.update_plan(name, run, delta, plan_id=plan_id, request_id=secrets.token_hex(16))
    return _say(stored, plan_title(stored), as_json=as_json)


async def remove_plan(settings: CliSettings, project: str, run: str, plan_id: str, *, as_json: bool) -> int:
    """Take a plan away; what it was is told."""
    async with open_session(settings) as session:
        name = (await session.client.init_project(project)).name
        plan = await session.client.get_plan(name, run, plan_id=plan_id)
        await session.client.remove_plan(name, run, plan_id=plan_id, request_id=secrets.token_hex(16))
    shown = f"turnwright plan show {safe_line(run)} --plan-id {safe_line(plan.plan_id)} --version {plan.version}"
    return _say(plan, f"plan {safe_line(plan.plan_id)}: removed; `{shown}` still shows it", as_json=as_json)


def _say(plan: plan_pb2.Plan, words: str, *, as_json: bool) -> int:
    if as_json:
        return _json_lines([plan])
    put(console(), Text(words))
    return 0


def _json_lines(messages: Sequence[Message]) -> int:
    for message in messages:
        write_line(to_line(message))
    return 0
