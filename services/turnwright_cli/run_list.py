"""The runs of a project as a table, also a live one, and how one is named.

That is by its alias, or by a beginning that no other run has.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Final

from turnwright.runs.v1 import run_service_pb2
from turnwright.types.v1 import run_pb2

from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, console, is_pipe, show_list, table_of, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_project
from turnwright_cli.status_words import run_words, title_of, turns_words
from turnwright_client import Client, RunList, RunsMessage
from turnwright_core.errors import MissingError, Reason
from turnwright_core.suggestions import did_you_mean

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

TITLE_CHARS = 60
"""Length of what a run is about in a list, in characters."""
ROWS_MAX = 50
"""Runs that a live table shows; the rest is counted."""
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
    return [(run.run, safe_line(title_of(run), TITLE_CHARS)) async for run in client.list_runs(project)]


async def names_of_models(client: Client) -> list[tuple[str, str]]:
    return [(one.alias, safe_line(one.vendor_model)) for one in await client.list_models()]


RUNS: Final[Sequence[Column[run_pb2.Run]]] = (
    Column("run", lambda run: run.run, whole=True),
    Column("status", run_words),
    Column("turns", lambda run: str(run.turn)),
    Column("model", lambda run: run.loop.settings.model or run.settings.model),
    Column("changed", lambda run: run.update_time.ToDatetime(UTC).astimezone().strftime("%Y-%m-%d %H:%M")),
    Column("title", title_of, TITLE_CHARS),
)
_TREE: Final = (Column[run_pb2.Run]("run", lambda run: "  " * run.parent.depth + run.run, whole=True), *RUNS[1:])
"""For people: agents are indented."""
NO_RUNS: Final = "No runs yet. Start one with `turnwright act PROMPT`."


async def list_runs(call: Invocation, *, watch: bool = False) -> int:
    if watch:
        return await watch_runs(call)
    async with open_project(call, reads=True) as (client, name):
        found = [run async for run in client.list_runs(name)] if name else []
    return show_list(call, as_tree(found), RUNS if is_pipe() or not console().is_terminal else _TREE, empty=NO_RUNS)


def as_tree(found: Sequence[run_pb2.Run]) -> list[run_pb2.Run]:
    """The runs, with the agents of each behind it."""
    aliases = {run.run for run in found}
    below: dict[str, list[run_pb2.Run]] = {}
    for run in found:
        below.setdefault(run.parent.run if run.parent.run in aliases else "", []).append(run)
    tree: list[run_pb2.Run] = []
    left = below.pop("", [])
    while left:
        tree.append(left.pop(0))
        left = below.pop(tree[-1].run, []) + left
    return tree


async def watch_runs(call: Invocation) -> int:
    # Not for the commands that list.
    from rich.live import Live

    from turnwright_cli.inbox import show_watch

    out = console()
    with contextlib.ExitStack() as stack:
        show: Callable[[RunsMessage], None] = _show_lines
        if not call.as_json and out.is_terminal:
            show = _live(stack.enter_context(Live(console=out, auto_refresh=False)))
        async with open_project(call) as (client, name):
            await show_watch(call, client.watch_runs(name), show)
    return 0


def _live(live: Live) -> Callable[[RunsMessage], None]:
    run_list = RunList()

    def show(message: RunsMessage) -> None:
        run_list.apply(message)
        live.update(run_list_table(run_list), refresh=True)

    return show


def _show_lines(message: RunsMessage) -> None:
    for alias in message.changed.deleted:
        write_line(f"{safe_line(alias)}: gone")
    for one in (*message.snapshot.runs, *message.changed.created, *message.changed.updated):
        write_line(overview_line(one))


def overview_line(one: run_pb2.RunOverview) -> str:
    waiting = f", {one.proposals} to decide" if one.proposals else ""
    text = safe_line(title_of(one.run), TITLE_CHARS)
    stands = f"{run_words(one.run)}, {turns_words(one.run.turn)}{waiting}"
    return f"{safe_line(one.run.run)}: {stands}: {text}"


_OVERVIEWS: Final[Sequence[Column[run_pb2.RunOverview]]] = (
    Column("run", lambda one: one.run.run),
    Column("status", lambda one: run_words(one.run)),
    Column("turns", lambda one: str(one.run.turn)),
    Column("to decide", lambda one: str(one.proposals or "")),
    Column("title", lambda one: title_of(one.run), TITLE_CHARS),
)


def run_list_table(run_list: RunList) -> Table:
    ones = sorted(run_list.runs.values(), key=lambda one: one.run.update_time.ToNanoseconds(), reverse=True)
    table = table_of(_OVERVIEWS, ones[:ROWS_MAX], is_folded=False)
    if len(ones) > ROWS_MAX:
        table.add_row(f"and {len(ones) - ROWS_MAX} more", "", "", "", "")
    return table
