"""The runs of a project as a table, and how one is named: by its alias, or by a beginning that no other run has."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from datetime import datetime

from turnwright.runs.v1 import run_service_pb2
from turnwright.types.v1 import run_pb2

from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, show_lines, show_table
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_project
from turnwright_cli.status_words import run_words, title_of
from turnwright_client import Client
from turnwright_core.errors import MissingError, Reason
from turnwright_core.suggestions import did_you_mean

TITLE_CHARS = 60
SHOWN_MAX = 5
"""Runs that are named if a beginning is that of several."""


@contextlib.asynccontextmanager
async def open_run(
    call: Invocation, named: str, *services: str, reads: bool = False
) -> AsyncGenerator[tuple[Client, str, run_pb2.Run], None]:
    """The client, the name of the project, and the run, for a command that may only read and then needs `services`."""
    async with open_project(call, *services, reads=reads) as (client, project):
        yield client, project, (await found_run(client, project, named)).run


async def full_alias(client: Client, project: str, named: str) -> str:
    return (await found_run(client, project, named)).run.run


async def found_run(client: Client, project: str, named: str, **most: int) -> run_service_pb2.GetRunResponse:
    """A run, and at most as many turns and entries of it. Raises FailureError if none or several begin like this.

    An empty project is a directory in which no run was started.
    """
    if not project:
        raise usage(
            f"There is no run {safe_line(named)}: none was started in this directory. Name another one with --project."
        )
    try:
        return await client.get_run(project, named, **most)
    except MissingError as error:
        if error.reason is not Reason.RUN_NOT_FOUND:
            raise
    aliases = [run.run async for run in client.list_runs(project)]
    found = [alias for alias in aliases if named and alias.startswith(named)]
    if len(found) == 1:
        return await client.get_run(project, found[0], **most)
    if found:
        more = ", ..." if len(found) > SHOWN_MAX else ""
        raise usage(
            f"{len(found)} runs begin with {safe_line(named)}: {', '.join(found[:SHOWN_MAX])}{more}. Write more of one."
        )
    near = did_you_mean(named, aliases)
    raise usage(f"There is no run {safe_line(named)}{near}. `turnwright runs` lists the runs of this project.")


async def names_of_runs(client: Client, project: str) -> list[tuple[str, str]]:
    """Each run with what it is about."""
    return [(run.run, safe_line(title_of(run), TITLE_CHARS)) async for run in client.list_runs(project)]


async def names_of_models(client: Client) -> list[tuple[str, str]]:
    return [(one.alias, safe_line(one.vendor_model)) for one in await client.list_models()]


SUMMARY_CHARS = 60


async def runs(call: Invocation, *, watch: bool) -> int:
    if watch:
        from turnwright_cli.steering import watch_runs  # noqa: PLC0415 - not to list them

        return await watch_runs(call)
    return await list_runs(call)


async def list_runs(call: Invocation) -> int:
    async with open_project(call, reads=True) as (client, name):
        found = [run async for run in client.list_runs(name)] if name else []
    if call.as_json:
        return show_lines(found)
    show_runs(found)
    return 0


def show_runs(found: Iterable[run_pb2.Run]) -> None:
    show_table(
        (
            Column("run", whole=True),
            *map(Column, ("status", "turns", "model", "changed")),
            Column("title", SUMMARY_CHARS),
        ),
        (
            (
                run.run,
                run_words(run),
                str(run.turn),
                run.loop.settings.model or run.settings.model,
                datetime.fromtimestamp(run.update_time.seconds).astimezone().strftime("%Y-%m-%d %H:%M"),
                title_of(run),
            )
            for run in found
        ),
        empty="No runs yet. Start one with `turnwright act PROMPT`.",
    )
