"""The commands that change, tell and follow runs beside their work; they join those of app.py."""
# ruff: noqa: PLC0415 - imports stand in the bodies, so that --help and usage errors load nothing else

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from turnwright_cli import options
from turnwright_cli.app import app, one_run, runs
from turnwright_cli.options import AT_LEAST_0, finish, root_of, settings_of


@app.command()
@options.run
@click.option("--to", default="", metavar="ALIAS", help="Alias of the fork; by default a new one.")
@click.option("--turn", default=0, metavar="N", type=AT_LEAST_0, help="Begin at the end of this turn.")
@options.common
def fork(run: str, to: str, turn: int, project: str | None, as_json: bool, server: str | None) -> None:
    """Make a run that begins with what another one sees."""
    from turnwright_cli.steering import fork_run

    settings = settings_of(server=server)
    finish(fork_run(settings, root_of(settings, project), run, to, turn, as_json=as_json))


@app.command()
@options.run
@click.argument("new", metavar="NEW", help="The other alias.")
@options.common
def rename(run: str, new: str, project: str | None, as_json: bool, server: str | None) -> None:
    """Give a run another alias; its loops must have ended."""
    from turnwright_cli.steering import rename_run

    settings = settings_of(server=server)
    finish(rename_run(settings, root_of(settings, project), run, new, as_json=as_json))


@app.command()
@options.run
@click.argument("message", metavar="MESSAGE", help="Message to the model; - reads standard input.")
@options.common
def inject(run: str, message: str, project: str | None, as_json: bool, server: str | None) -> None:
    """Tell the model of a run something in its next turn, without giving it a task."""
    from turnwright_cli.reading import given_text
    from turnwright_cli.steering import inject_message
    from turnwright_core.limits import COMMENT_BYTES_MAX

    settings = settings_of(server=server)
    text = given_text(message, "message", COMMENT_BYTES_MAX)
    finish(inject_message(settings, root_of(settings, project), run, text, as_json=as_json))


@app.command()
@options.run
@click.option("--model", metavar="MODEL", help="Alias of the model for later loops, or vendor/model.")
@click.option("--temperature", metavar="T", type=click.FloatRange(0, 2), help="Sampling temperature.")
@click.option(
    "--persona-file", metavar="FILE", type=click.Path(path_type=Path), help="Persona; before the first turn only."
)
@click.option("--context-limit", metavar="TOKENS", type=AT_LEAST_0, help="Context window; 0: the model's.")
@options.limits
@click.option("--yolo/--no-yolo", default=None, help="Accept every proposal of the run.")
@options.calls
@options.common
def config(run: str, **given: Any) -> None:
    """Show or change what the loops of a run share. The limits replace all that the run had."""
    from turnwright.types.v1 import settings_pb2

    from turnwright_cli.steering import configure_run, read_persona
    from turnwright_cli.tasks import budget_of

    patch = settings_pb2.RunSettingsPatch(
        model=given["model"],
        temperature=given["temperature"],
        context_limit=given["context_limit"],
        persona=None if given["persona_file"] is None else read_persona(given["persona_file"]),
        budget=budget_of(given["max_turns"], given["max_tokens"], given["max_cost"], given["max_seconds"]),
        yolo=given["yolo"],
        calls=options.call_style(given["calls"]),
    )
    settings = settings_of(server=given["server"])
    root = root_of(settings, given["project"])
    finish(configure_run(settings, root, run, patch, as_json=given["as_json"]))


@runs.command("remove")
@options.run
@options.common
@click.pass_obj
def runs_remove(before: dict[str, Any], /, run: str, **after: Any) -> None:
    """Remove a run with everything that only it holds; its loops must have ended."""
    from turnwright_cli.steering import remove_run

    settings, root, json = one_run(before, after)
    finish(remove_run(settings, root, run, as_json=json))
