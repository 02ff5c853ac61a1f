"""The commands of a run's plans; they join those of app.py."""
# ruff: noqa: PLC0415 - imports stand in the bodies, so that --help and usage errors load nothing else

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from turnwright_cli import options
from turnwright_cli.app import app
from turnwright_cli.options import AT_LEAST_0, Group, finish, root_of, settings_of

if TYPE_CHECKING:
    from turnwright.types.v1 import plan_pb2


@app.group(cls=Group)
def plan() -> None:
    """The plans of a run: what it means to do, and how far it has come."""


_plan_id = click.option("--plan-id", default="", metavar="ID", help="Which plan [main]")
_file = click.option("--file", metavar="FILE", type=options.FILE, help="Read the text from this file.")


@plan.command("show")
@options.run
@click.option("--plan-id", default="", metavar="ID", help="Only this plan [all; with --version main]")
@click.option("--version", default=0, metavar="N", type=AT_LEAST_0, help="This version of it [the latest]")
@options.common
def plan_show(run: str, plan_id: str, version: int, project: str | None, as_json: bool, server: str | None) -> None:
    """Show the plans of a run, or one of them."""
    from turnwright_cli.plans import show_plans

    settings = settings_of(server=server)
    finish(show_plans(settings, root_of(settings, project), run, plan_id, version, as_json=as_json))


@plan.command("set")
@options.run
@click.argument("text", metavar="[TEXT]", required=False, help="The plan, in Markdown; - reads standard input.")
@_file
@click.option("--items", metavar="JSON", help="A plan of items: a JSON array; - reads standard input.")
@click.option("--mode", default="", metavar="WORD", help="The mode that it is written in.")
@_plan_id
@options.common
def plan_set(
    run: str,
    text: str | None,
    file: Path | None,
    items: str | None,
    mode: str,
    plan_id: str,
    project: str | None,
    as_json: bool,
    server: str | None,
) -> None:
    """Set a plan, or replace it whole by a new version.

    An item is an object with content, priority (high, medium, low), status (pending, in_progress, completed, cancelled,
    blocked) and, where it has any, evidence_paths.
    """
    from turnwright_cli.plans import set_plan

    wanted = _given(text, file, items)
    wanted.plan_id, wanted.mode = plan_id, mode
    settings = settings_of(server=server)
    finish(set_plan(settings, root_of(settings, project), run, wanted, as_json=as_json))


def _given(text: str | None, file: Path | None, items: str | None) -> plan_pb2.Plan:
    """The plan that one of the three says. Raises UsageError, FailureError."""
    from turnwright.types.v1 import plan_pb2

    from turnwright_cli.reading import given_text
    from turnwright_core.limits import PLAN_BODY_BYTES_MAX

    if [text, file, items].count(None) != 2:
        raise click.UsageError("Give the plan as TEXT, with --file or with --items: one of them.")
    if items is not None:
        body = given_text(items, "list of items", PLAN_BODY_BYTES_MAX)
        return plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_ITEMS, body=body)
    body = _text(text, file, "plan", PLAN_BODY_BYTES_MAX)
    return plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_MARKDOWN, body=body)


def _text(text: str | None, file: Path | None, what: str, bytes_max: int) -> str:
    from turnwright_cli.reading import given_text, text_in

    return text_in(file, what, bytes_max) if file is not None else given_text(text or "", what, bytes_max)


@plan.command("update")
@options.run
@click.argument("text", metavar="[TEXT]", required=False, help="What to add; - reads standard input.")
@_file
@_plan_id
@options.common
def plan_update(
    run: str,
    text: str | None,
    file: Path | None,
    plan_id: str,
    project: str | None,
    as_json: bool,
    server: str | None,
) -> None:
    """Add to a plan; what it says stays as it is."""
    from turnwright_cli.plans import update_plan
    from turnwright_core.limits import PLAN_DELTA_BYTES_MAX

    if [text, file].count(None) != 1:
        raise click.UsageError("Give what to add as TEXT or with --file.")
    delta = _text(text, file, "delta", PLAN_DELTA_BYTES_MAX)
    settings = settings_of(server=server)
    finish(update_plan(settings, root_of(settings, project), run, plan_id, delta, as_json=as_json))


@plan.command("rm")
@options.run
@_plan_id
@options.common
def plan_rm(run: str, plan_id: str, project: str | None, as_json: bool, server: str | None) -> None:
    """Take a plan away; its versions can still be shown."""
    from turnwright_cli.plans import remove_plan

    settings = settings_of(server=server)
    finish(remove_plan(settings, root_of(settings, project), run, plan_id, as_json=as_json))
