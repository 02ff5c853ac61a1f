"""The options that commands share, and how a command reads its settings and ends."""
# ruff: noqa: PLC0415 - nothing is loaded before a command needs it

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from turnwright.types.v1 import settings_pb2

    from turnwright_cli.config import CliSettings

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

AT_LEAST_0 = click.IntRange(min=0)
FILE = click.Path(path_type=Path, dir_okay=False)


class Group(click.Group):
    """Commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)


def several(*options: Decorator[Any]) -> Decorator[Any]:
    """Options that always come together, as one decorator."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


project = click.option("--project", metavar="DIR", help="Directory of the project [TURNWRIGHT_PROJECT; .]")
server = click.option(
    "--server", metavar="ADDR", help="Executor to use [TURNWRIGHT_SERVER; the running stack, or a new one]"
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print only JSON, one message per line.")
common = several(project, as_json, server)
"""Whose project, in which form, from which executor."""

limits = several(
    click.option("--max-turns", metavar="N", type=AT_LEAST_0, help="Limit on turns."),
    click.option("--max-tokens", metavar="N", type=AT_LEAST_0, help="Limit on tokens."),
    click.option("--max-cost", metavar="USD", type=click.FloatRange(min=0), help="Limit on cost, in US dollars."),
    click.option("--max-seconds", metavar="S", type=click.FloatRange(min=0), help="Limit on working time."),
)
"""What work may use up."""

calls = click.option(
    "--calls",
    metavar="HOW",
    type=click.Choice(["tags", "native", "auto"]),
    help="How the model calls tools: tags, native or auto.",
)
run = click.argument("run", metavar="RUN", help="Alias of the run.")
backup_file = click.argument("file", metavar="FILE", type=FILE, help="The backup.")
database = click.option(
    "--db", metavar="DB", help="Database: a file, or postgresql://... [TURNWRIGHT_DB; that of the home]"
)


def call_style(word: str | None) -> settings_pb2.CallStyle.ValueType | None:
    """The value of --calls; None where it was not given."""
    from turnwright.types.v1 import settings_pb2

    return settings_pb2.CallStyle.Value(f"CALL_STYLE_{word.upper()}") if word else None


def settings_of(**options: object) -> CliSettings:
    """The settings of a command; options that were not given come from the environment."""
    from turnwright_cli.config import CliSettings
    from turnwright_core.kit.settings import load

    return load(CliSettings, **options)


def root_of(settings: CliSettings, project: str | None) -> str:
    from turnwright_cli.tasks import project_root

    return project_root(settings, project)


def finish(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a command's coroutine and exit with its code."""
    import asyncio
    import gc

    from turnwright_cli.exit import CLOSE_S, watched
    from turnwright_cli.exit_codes import INTERRUPTED

    # What was loaded up to here stays: to look through it again and again frees nothing. See __main__.
    gc.freeze()
    gc.enable()
    try:
        with watched(work, CLOSE_S) as bounded:
            code = asyncio.run(bounded)
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)
