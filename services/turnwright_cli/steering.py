"""`fork`, `rename`, `inject`, `config`, `runs remove` and `runs --watch`: a run beside its work.

Source: rows RU230-RU232, RU242; architecture 15.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from rich.live import Live
from rich.table import Table
from rich.text import Text
from turnwright.types.v1 import run_pb2, settings_pb2

from turnwright_cli.config import CliSettings
from turnwright_cli.exit_codes import usage
from turnwright_cli.inbox import pump
from turnwright_cli.interrupts import Interrupts
from turnwright_cli.json_lines import to_line
from turnwright_cli.lists import SUMMARY_CHARS, budget_words, call_words
from turnwright_cli.output import console, put, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.render import turns_words
from turnwright_cli.session import open_session
from turnwright_cli.status_words import run_words, said_of
from turnwright_client import Board, Client, RunsMessage
from turnwright_core.limits import PERSONA_BYTES_MAX

ROWS_MAX = 50
"""Runs that a live table shows; the rest is counted."""


async def fork_run(settings: CliSettings, project: str, alias: str, new: str, turn: int, *, as_json: bool) -> int:
    request_id = secrets.token_hex(16)
    async with _client(settings, project) as (client, name):
        run = await client.fork_run(name, alias, new_run=new, turn=turn, request_id=request_id)
    return _say(run, f"forked from {alias} after turn {run.forked_from.turn}", as_json=as_json)


async def rename_run(settings: CliSettings, project: str, alias: str, new: str, *, as_json: bool) -> int:
    request_id = secrets.token_hex(16)
    async with _client(settings, project) as (client, name):
        run = await client.rename_run(name, alias, new, request_id)
    return _say(run, f"it was {alias}", as_json=as_json)


async def inject_message(settings: CliSettings, project: str, alias: str, message: str, *, as_json: bool) -> int:
    request_id = secrets.token_hex(16)
    async with _client(settings, project) as (client, name):
        told = await client.inject_message(name, alias, message, request_id)
    if as_json:
        write_line(to_line(told))
        return 0
    return _say(told.run, "the model reads it in its next turn", as_json=False)


async def remove_run(settings: CliSettings, project: str, alias: str, *, as_json: bool) -> int:
    """Remove a run with everything that only it holds."""
    async with _client(settings, project) as (client, name):
        run = (await client.get_run(name, alias)).run
        await client.remove_run(name, alias)
    return _say(run, "removed", as_json=as_json)


async def configure_run(
    settings: CliSettings, project: str, alias: str, patch: settings_pb2.RunSettingsPatch, *, as_json: bool
) -> int:
    """Change what the loops of a run share; without changes only show it."""
    async with _client(settings, project) as (client, name):
        if patch.ListFields():
            run = await client.configure_run(name, alias, patch, secrets.token_hex(16))
        else:
            run = (await client.get_run(name, alias)).run
    if as_json:
        write_line(to_line(run))
        return 0
    out = console()
    for line in settings_lines(run.settings):
        put(out, Text(line))
    return 0


def settings_lines(settings: settings_pb2.RunSettings) -> list[str]:
    """The settings of a run, one a line."""
    persona = safe_line(settings.persona, SUMMARY_CHARS) if settings.HasField("persona") else "built in"
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
    ]


def read_persona(file: Path) -> str:
    """The persona in a file; an empty one is the built-in one. Raises FailureError when it cannot be read."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"The persona {str(file)!r} cannot be read: {error}.") from None
    if len(text.encode()) > PERSONA_BYTES_MAX:
        raise usage(f"The persona is longer than {PERSONA_BYTES_MAX} bytes.")
    return text


# Watching -------------------------------------------------------------------------------------------------------------


async def watch_runs(settings: CliSettings, project: str, *, as_json: bool) -> int:
    """The runs of the project as they change, until Ctrl-C."""
    out = console()
    with Interrupts().entered() as interrupts, contextlib.ExitStack() as stack:
        if as_json:
            show: Callable[[RunsMessage], None] = _show_json
        elif out.is_terminal:
            show = _live(stack.enter_context(Live(console=out, auto_refresh=False)))
        else:
            show = _show_lines
        async with (
            _client(settings, project) as (client, name),
            contextlib.aclosing(client.watch_runs(name)) as messages,
        ):
            await pump(messages, interrupts.asked, show)
    return 0


def _show_json(message: RunsMessage) -> None:
    """Every message, heartbeats among them: a program wants to know that the watch lives."""
    write_line(to_line(message))


def _live(live: Live) -> Callable[[RunsMessage], None]:
    board = Board()

    def show(message: RunsMessage) -> None:
        board.apply(message)
        live.update(board_table(board), refresh=True)

    return show


def _show_lines(message: RunsMessage) -> None:
    for alias in message.changed.removed:
        write_line(f"{safe_line(alias)}: gone")
    for one in (*message.snapshot.runs, *message.changed.runs):
        write_line(overview_line(one))


def overview_line(one: run_pb2.RunOverview) -> str:
    waiting = f", {one.proposals} to decide" if one.proposals else ""
    text = safe_line(said_of(one.run), SUMMARY_CHARS)
    stands = f"{run_words(one.run)}, {turns_words(one.run.turn)}{waiting}"
    return f"{safe_line(one.run.run)}: {stands}: {text}"


def board_table(board: Board) -> Table:
    """The runs of a project, latest written first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("run", "status", "turns", "to decide", "summary"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    ones = sorted(board.runs.values(), key=lambda one: one.run.update_time.ToNanoseconds(), reverse=True)
    for one in ones[:ROWS_MAX]:
        table.add_row(
            Text(safe_line(one.run.run)),
            run_words(one.run),
            str(one.run.turn),
            str(one.proposals or ""),
            Text(safe_line(said_of(one.run), SUMMARY_CHARS)),
        )
    if len(ones) > ROWS_MAX:
        table.add_row(f"and {len(ones) - ROWS_MAX} more", "", "", "", "")
    return table


# Shared ---------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _client(settings: CliSettings, project: str) -> AsyncIterator[tuple[Client, str]]:
    async with open_session(settings) as session:
        yield session.client, (await session.client.init_project(project)).name


def _say(run: run_pb2.Run, what: str, *, as_json: bool) -> int:
    if as_json:
        write_line(to_line(run))
    else:
        put(console(), Text(f"{safe_line(run.run)}: {run_words(run, knows_holder=False)}; {safe_line(what)}"))
    return 0
