"""Completion in a shell: the script for it, and the names of runs and models that it offers."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

import click
from click.shell_completion import CompletionItem, get_completion_class

from turnwright_cli.exit_codes import DONE, FailureError, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import write_line
from turnwright_cli.run_list import names_of_models, names_of_runs
from turnwright_cli.session import open_project, open_session
from turnwright_core.errors import TurnwrightError
from turnwright_kit.settings import SettingsError

NAMES_S_MAX: Final = 5.0
"""Seconds that a shell is kept waiting for names."""

_VARIABLE: Final = "_TURNWRIGHT_COMPLETE"


def print_script(_call: Invocation, *, shell: str) -> int:
    from turnwright_cli.app import app

    made = get_completion_class(shell)
    if made is None:
        raise usage(f"There is no completion for {shell}.")
    write_line(made(app, {}, "turnwright", _VARIABLE).source())
    return DONE


def _offered(
    names: Callable[[Invocation], Coroutine[None, None, list[tuple[str, str]]]], context: click.Context, incomplete: str
) -> list[CompletionItem]:
    """The names that can be read; none if something is wrong, which the command itself will say."""
    given = {**(context.parent.params if context.parent else {}), **context.params}
    call = Invocation(given.get("project"), given.get("server"))
    with (
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(FailureError, TurnwrightError, SettingsError, OSError),
    ):
        found = asyncio.run(asyncio.wait_for(names(call), NAMES_S_MAX))
        return [CompletionItem(name, help=meaning) for name, meaning in found if name.startswith(incomplete)]
    return []


async def _runs(call: Invocation) -> list[tuple[str, str]]:
    async with open_project(call, reads=True) as (client, project):
        return await names_of_runs(client, project) if project else []


async def _models(call: Invocation) -> list[tuple[str, str]]:
    async with open_session(call.settings, reads=()) as session:
        return await names_of_models(session.client)


runs: Final = partial(_offered, _runs)
models: Final = partial(_offered, _models)
