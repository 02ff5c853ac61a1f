"""How commands are declared: a name, a help text, options, and the function that does the work.

A function is named as `module:function` of this package and is loaded when its command runs, so that --help and usage
errors load nothing else. It takes the `Invocation` and the command's own options by their names.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
from click import Argument, Option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

AT_LEAST_0: Final = click.IntRange(0, 2**32 - 1)
AT_LEAST_0.name = "whole number"
FILE: Final = click.Path(path_type=Path, dir_okay=False)
FOLDER: Final = click.Path(path_type=Path, file_okay=False)


def offering(work: str) -> Callable[[click.Context, click.Parameter, str], object]:
    """What completes a parameter in a shell: a function that is loaded then."""
    return lambda context, _parameter, incomplete: function_of(work)(context, incomplete)


PROJECT: Final = Option(["-p", "--project"], metavar="DIR", help="Directory of the project [TURNWRIGHT_PROJECT; .]")
SERVER: Final = Option(
    ["--server"], metavar="ADDR", help="Executor to use [TURNWRIGHT_SERVER; the running stack, or a new one]"
)
AS_JSON: Final = Option(["-j", "--json", "as_json"], is_flag=True, help="Print only JSON, one message per line.")
COMMON: Final = (PROJECT, AS_JSON, SERVER)
"""The project, the output format, and the executor."""

DEPLOYMENT: Final = Option(["--deployment"], is_flag=True, help="Of the deployment, not of this project.")

WITHOUT_PROJECT: Final = (AS_JSON, SERVER)

LIMITS: Final = (
    Option(["--max-turns"], metavar="N", type=AT_LEAST_0, help="Limit on turns."),
    Option(["--max-tokens"], metavar="N", type=click.IntRange(0, 2**53 - 1), help="Limit on tokens."),
    Option(["--max-cost"], metavar="USD", type=click.FloatRange(min=0), help="Limit on cost, in US dollars."),
    Option(["--max-seconds"], metavar="S", type=click.FloatRange(0, 315_576_000_000), help="Limit on working time."),
)
"""Budget limits."""

WITHOUT: Final = Option(
    ["--without"],
    type=click.Choice(["repo", "web", "interaction", "proposals"]),
    multiple=True,
    help="Work without this; repeatable.",
)
CALLS: Final = Option(["--calls"], type=click.Choice(["tags", "native", "auto"]), help="How the model calls tools.")
PROMPT_EDITS: Final = Option(
    ["--prompt-edits"], metavar="FILE", help="Edit the prompt of each turn: a JSON list of edits, see docs/clients.md."
)
RUN: Final = Argument(
    ["run"], metavar="RUN", help="Alias of the run, or its beginning.", shell_complete=offering("completing:runs")
)
WATCH: Final = Option(["--watch"], is_flag=True, help="Keep watching until Ctrl-C.")
DATABASE: Final = Option(
    ["--db"], metavar="DB", help="Database: a file, or postgresql://... [TURNWRIGHT_DB; that of the home]"
)


class Described(click.Command):
    """A command with examples in its help, and its first clause in the list of commands."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from turnwright_cli.examples import EXAMPLES

        with formatter.section("Examples"):
            for line in EXAMPLES[ctx.command_path]:
                formatter.write(f"  {line}\n")

    def get_short_help_str(self, limit: int = 45) -> str:
        clause = re.split(r"[.:;] ?", self.help or "")[0]
        return clause if len(clause) <= limit else clause.split(", ")[0]


class Group(Described, click.Group):
    """Commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(self.commands)


class WorkCommand(Described):
    """A command implemented by a function that is loaded when it runs."""

    def __init__(self, name: str, work: str, *params: click.Parameter, **more: Any) -> None:
        super().__init__(name, params=list(params), callback=_callback(work), **more)
        self.work = work

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A text that begins with a dash, such as an item of a list, is an argument: no option has such a name."""
        options = [one for one in self.params if isinstance(one, Option)]
        takes = {name: not one.is_flag for one in options for name in one.opts}

        def is_text(at: int) -> bool:
            word, *more = args[at].split(None, 1)
            is_option = word.split("=")[0] in takes or word[:2] in takes
            return bool(more) and word.startswith("-") and not is_option and not (at and takes.get(args[at - 1]))

        texts = [at for at, text in enumerate(args) if text.strip() and is_text(at)]
        if texts and "--" not in args:
            args = [*(text for at, text in enumerate(args) if at not in texts), "--", *(args[at] for at in texts)]
        return super().parse_args(ctx, args)


def make_app(work: str, help_text: str, *params: click.Parameter) -> click.Group:
    """The command line itself; `work` is done where no command is named. Its options are for that alone."""
    run = _callback(work)

    @click.pass_context
    def enter(context: click.Context, /, **given: object) -> None:
        if context.invoked_subcommand is None:
            run(**given)
        elif wrong := next((name for name, value in given.items() if value), ""):
            raise click.UsageError(f"Put --{wrong} after the command: turnwright {context.invoked_subcommand} ...")

    names = {"help_option_names": ["-h", "--help"]}
    return Group(
        params=list(params), help=help_text, callback=enter, invoke_without_command=True, context_settings=names
    )


def add_command(
    group: click.Group,
    name: str,
    work: str,
    help_text: str,
    *params: click.Parameter,
    common: Sequence[click.Parameter] = COMMON,
) -> None:
    group.add_command(WorkCommand(name, work, *params, *common, help=help_text))


def add_group(parent: click.Group, name: str, help_text: str, *params: click.Parameter, work: str = "") -> click.Group:
    """Add a group of commands; `work` runs if none of them is named. The group's options also apply to each command."""
    run = _callback(work)

    @click.pass_context
    def enter(context: click.Context, /, **given: object) -> None:
        context.obj = given
        if work and context.invoked_subcommand is None:
            run(**given)

    group = Group(name, params=list(params), help=help_text, callback=enter, invoke_without_command=bool(work))
    parent.add_command(group)
    return group


def function_of(work: str) -> Callable[..., Any]:
    module, _, name = work.partition(":")
    function: Callable[..., object] = getattr(import_module(f"turnwright_cli.{module}"), name)
    return function


def _callback(work: str) -> Callable[..., NoReturn]:
    @click.pass_context
    def run(context: click.Context, /, **given: object) -> NoReturn:
        from turnwright_cli.invocation import Invocation

        group = context.obj or {}
        shared: dict[str, Any] = {name: given.pop(name, None) or group.get(name) for name in Invocation.SHARED}
        _check_text({**shared, **given})
        _finish(function_of(work)(Invocation(**shared), **given))

    return run


def _check_text(given: Mapping[str, object]) -> None:
    """Raises UsageError for an argument whose bytes are not UTF-8: no message can hold it."""
    from turnwright_cli.plain import is_utf8

    for name, value in given.items():
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and not is_utf8(text):
                raise click.UsageError(f"{name.upper()} is not UTF-8 text.")


def _finish(work: int | Awaitable[int]) -> NoReturn:
    """Run a command's coroutine to its end, and exit with its code."""
    import asyncio
    import gc

    from turnwright_cli.exit_codes import INTERRUPTED
    from turnwright_cli.interrupts import until_hangup
    from turnwright_kit.event_loop import EventLoop

    if isinstance(work, int):
        raise SystemExit(work)
    # What was loaded up to here stays: to look through it again and again frees nothing. See __main__.
    gc.freeze()
    gc.enable()
    # Never closed: closing an event loop waits for its threads without a deadline, and the process ends anyway.
    runner = asyncio.Runner(loop_factory=EventLoop)
    try:
        code = runner.run(until_hangup(work))
    except KeyboardInterrupt:
        code = INTERRUPTED
    raise SystemExit(code)
