"""The commands that change, tell and follow runs beside their work; they join those of app.py."""
# ruff: noqa: PLC0415 - imports stand in the bodies, so that --help and usage errors load nothing else

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnwright_cli.app import (
    Alias,
    AsJson,
    MaxCost,
    MaxSeconds,
    MaxTokens,
    MaxTurns,
    Project,
    Server,
    app,
    finish,
    runs_app,
    settings_of,
)


@app.command()
def fork(
    run: Alias,
    to: Annotated[str, typer.Option("--to", metavar="ALIAS", help="Alias of the fork; one is made otherwise.")] = "",
    turn: Annotated[int, typer.Option("--turn", metavar="N", min=0, help="Begin at the end of this turn.")] = 0,
    project: Project = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """Make a run that begins with what another one sees."""
    from turnwright_cli.steering import fork_run
    from turnwright_cli.tasks import project_root

    settings = settings_of(server=server)
    finish(fork_run(settings, project_root(settings, project), run, to, turn, as_json=as_json))


@app.command()
def rename(
    run: Alias,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The other alias.")],
    project: Project = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """Give a run another alias; its loops must have ended."""
    from turnwright_cli.steering import rename_run
    from turnwright_cli.tasks import project_root

    settings = settings_of(server=server)
    finish(rename_run(settings, project_root(settings, project), run, new, as_json=as_json))


@app.command()
def inject(
    run: Alias,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What the model reads; - reads standard input.")],
    project: Project = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """Tell the model of a run something in its next turn, without giving it a task."""
    from turnwright_cli.steering import inject_message, read_text
    from turnwright_cli.tasks import project_root

    settings = settings_of(server=server)
    text = read_text(message, "message")
    finish(inject_message(settings, project_root(settings, project), run, text, as_json=as_json))


@app.command()
def config(
    run: Alias,
    model: Annotated[str | None, typer.Option("--model", metavar="ALIAS", help="Model of loops from now on.")] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", min=0, max=2, help="Sampling temperature.")
    ] = None,
    persona_file: Annotated[
        Path | None, typer.Option("--persona-file", metavar="FILE", help="Persona; before the first turn only.")
    ] = None,
    context_limit: Annotated[
        int | None, typer.Option("--context-limit", metavar="TOKENS", min=0, help="Context window; 0: the model's.")
    ] = None,
    max_turns: MaxTurns = None,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    max_seconds: MaxSeconds = None,
    yolo: Annotated[bool | None, typer.Option("--yolo/--no-yolo", help="Accept every proposal of the run.")] = None,
    project: Project = None,
    as_json: AsJson = False,
    server: Server = None,
) -> None:
    """Show or change what the loops of a run share. The limits replace all that the run had."""
    from turnwright.types.v1 import settings_pb2

    from turnwright_cli.steering import configure_run, read_persona
    from turnwright_cli.tasks import budget_of, project_root

    patch = settings_pb2.RunSettingsPatch(
        model=model,
        temperature=temperature,
        context_limit=context_limit,
        persona=None if persona_file is None else read_persona(persona_file),
        budget=budget_of(max_turns, max_tokens, max_cost, max_seconds),
        yolo=yolo,
    )
    settings = settings_of(server=server)
    finish(configure_run(settings, project_root(settings, project), run, patch, as_json=as_json))


@runs_app.command("remove")
def runs_remove(
    context: typer.Context, run: Alias, project: Project = None, as_json: AsJson = False, server: Server = None
) -> None:
    """Remove a run with everything that only it holds; its loops must have ended."""
    from turnwright_cli.app import one_run
    from turnwright_cli.steering import remove_run

    settings, root, json = one_run(context, project=project, as_json=as_json, server=server)
    finish(remove_run(settings, root, run, as_json=json))
