"""Commands that run services and look after them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from click import Argument, Option

from turnwright_cli.options import AS_JSON, DATABASE, FILE, PROJECT, SERVER, WITHOUT_PROJECT, add_command, add_group

_BACKUP: Final = (Argument(["file"], metavar="FILE", type=FILE, help="The backup."), DATABASE, AS_JSON)


def add_service_commands(app: click.Group) -> None:
    _add_services(app)
    _add_store(app)
    _add_others(app)


def _add_services(app: click.Group) -> None:
    add_command(
        app,
        "init",
        "initializing:init",
        "Find a model server on this host, and write it into your turnwright.toml.\n\n"
        "--clients instead opens the project of the directory to derived tokens, --no-clients closes it again.",
        Option(["--url"], metavar="URL", help="Ask this server instead, such as http://127.0.0.1:8080/v1."),
        Option(["--force"], is_flag=True, help="Replace the file that there is."),
        Option(["--clients/--no-clients"], default=None, help="Whether tokens for clients may use this project."),
        common=(PROJECT, SERVER),
    )
    add_command(
        app,
        "project",
        "steering:configure_project",
        "Show or change the settings of the project.",
        Option(
            ["--assembly"],
            type=click.Choice(["packet", "transcript", "default"]),
            help="How new runs are sent to the model, unless their task says; default: as TURNWRIGHT_ASSEMBLY says.",
        ),
        Option(["--force"], is_flag=True, help="Take a folder of the system or a home as a project, too."),
    )
    add_command(
        app,
        "doctor",
        "doctor:doctor",
        "Show what is configured, which services answer, and what is missing.",
        common=WITHOUT_PROJECT,
    )
    add_command(
        app,
        "serve",
        "serving:serve",
        "Run all four services, or those named, until SIGINT or SIGTERM.",
        Option(["--only"], metavar="NAME", multiple=True, help="Run this service; repeatable."),
        Option(
            ["--listen"],
            metavar="[NAME=]ADDR",
            multiple=True,
            help="Address to listen on; without NAME, the executor's.",
        ),
        *(
            Option([f"--{peer}"], metavar="ADDR", help=f"Address of {article} {peer} that runs elsewhere.")
            for article, peer in (("a", "store"), ("an", "assembler"), ("a", "provider"))
        ),
        DATABASE,
        common=(),
    )


def _add_store(app: click.Group) -> None:
    store = add_group(app, "store", "The store's database.")
    add_command(
        store,
        "backup",
        "storing:backup_store",
        "Back up the store's database into a new file, also while the store is running.",
        *_BACKUP,
        common=(),
    )
    add_command(
        store,
        "restore",
        "storing:restore_store",
        "Restore a backup into an empty database, SQLite or PostgreSQL.",
        *_BACKUP,
        common=(),
    )


def _add_others(app: click.Group) -> None:
    policy = add_group(app, "policy", "Test voters and other plugins.")
    add_command(
        policy,
        "test",
        "policy:try_policy",
        "Show which verdicts of stored turns would differ with a voter; changes nothing. Exits with 1 if some would.",
        Option(
            ["--hook"], metavar="MODULE:FUNCTION", multiple=True, help="A voter, or a plugin's register; repeatable."
        ),
        Option(["--run"], metavar="[PROJECT/]RUN", multiple=True, help="Test on this run; repeatable."),
        Option(["--all", "every"], is_flag=True, help="Test on every run of the project."),
    )

    add_command(
        app,
        "token",
        "tokens:print_token",
        "Print a token with fewer rights, derived from this deployment's secret.",
        Option(["--tier"], type=click.Choice(["client", "model", "plugin"]), required=True, help="What it may do."),
        Option(["--principal"], metavar="NAME", required=True, help="Who will use it."),
        common=(),
    )
    add_command(
        app,
        "completion",
        "completing:print_script",
        "Print a script with which a shell completes commands, options, and names of runs and models.",
        Argument(["shell"], metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]), help="bash, zsh or fish."),
        common=(),
    )
    add_command(
        app,
        "demo",
        "demonstration:demo",
        "Show a complete run on a small project, without a key or a network.",
        Option(["--source"], hidden=True, type=click.Path(path_type=Path, exists=True, file_okay=False)),
        common=(),
    )
