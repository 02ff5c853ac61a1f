"""The commands, in the order of --help: their arguments, and the function that implements each."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
from click import Argument, Option

from turnwright_cli.app_runs import add_model_commands, add_run_commands, add_schedule_commands
from turnwright_cli.options import (
    AS_JSON,
    CALLS,
    COMMON,
    DATABASE,
    FILE,
    LIMITS,
    PROJECT,
    PROMPT_EDITS,
    RUN,
    SERVER,
    WATCH,
    WITHOUT,
    WITHOUT_PROJECT,
    add_command,
    add_group,
    make_app,
    offering,
)

# Commands that run services and look after them.

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


_MODEL: Final = Option(
    ["-m", "--model"],
    metavar="MODEL",
    help="Alias of a model, or vendor/model; an existing run keeps its own.",
    shell_complete=offering("completing:models"),
)
_YOLO: Final = Option(["-y", "--yolo"], is_flag=True, help="Accept every proposal without asking.")

app = make_app(
    "chat:chat",
    "Work with an agent at the terminal: without a command, `turnwright` opens a session. The commands give single "
    "tasks, manage runs, and run the services behind them.",
    COMMON[0],
    Option(["-c", "--continue", "last"], is_flag=True, help="Continue the latest run of the project."),
    Option(["-r", "--run"], metavar="ALIAS", help="Continue this run.", shell_complete=offering("completing:runs")),
    _MODEL,
    _YOLO,
    SERVER,
)
click.version_option(package_name="turnwright", message="turnwright %(version)s", help="Show the version.")(app)

_TASK: Final = (
    Argument(["prompt"], metavar="PROMPT", help="The task; - reads standard input."),
    COMMON[0],
    _MODEL,
    Option(
        ["-r", "--run"],
        metavar="ALIAS",
        help="Run to continue or create [TURNWRIGHT_RUN; a new one]",
        shell_complete=offering("completing:runs"),
    ),
    Option(["--fork"], is_flag=True, help="Give the task to a fork of the run that --run names."),
    _YOLO,
    CALLS,
    WITHOUT,
    Option(
        ["--reasoning"],
        metavar="LEVEL",
        help="How much the model reasons: off, low, medium, high or a number of tokens.",
    ),
    Option(
        ["--assembly"],
        type=click.Choice(["packet", "transcript"]),
        help="How the run is sent to the model; an existing run keeps its own [the project's]",
    ),
    Option(
        ["--summaries/--no-summaries"],
        default=None,
        help="Have the model summarize a transcript before messages are evicted; an existing run keeps its choice [no]",
    ),
    Option(
        ["--project-instructions/--no-project-instructions"],
        default=None,
        help="Read AGENTS.md and CLAUDE.md as instructions; an existing run keeps its choice [yes]",
    ),
    Option(
        ["--image"],
        metavar="PATH",
        multiple=True,
        help="Show the model an image of the project with the prompt; repeatable.",
    ),
    Option(
        ["--answer-schema"],
        metavar="FILE",
        help="Require an answer in JSON that matches this JSON Schema; -: any object.",
    ),
    PROMPT_EDITS,
    *LIMITS,
    AS_JSON,
    SERVER,
)
add_command(
    app, "act", "tasks:act", "Give a task: files may change and commands may run, as you approve.", *_TASK, common=()
)
add_command(app, "ask", "tasks:ask", "Ask a question: nothing is changed.", *_TASK, common=())
add_command(
    app,
    "resolve",
    "tasks:resolve",
    "Decide on a proposal, then follow the loop to its end. --edit, --content-file and --answer imply --accept.\n\n"
    "At a terminal, without a decision, shows the proposal and asks.",
    RUN,
    Argument(["path"], metavar="[PATH]", help="The proposal; optional if only one is pending.", default=""),
    Option(["--accept/--reject"], default=None, help="The decision."),
    Option(["--reason"], default="", metavar="TEXT", help="With --reject: what the model reads."),
    Option(["--edit"], is_flag=True, help="Edit it in $VISUAL or $EDITOR, then accept it."),
    Option(
        ["--content-file"], metavar="[PATH=]FILE", multiple=True, help="Accept with this content; - is standard input."
    ),
    Option(["--answer"], default="", metavar="TEXT", help="Answer to the question."),
)

add_command(
    app,
    "inbox",
    "inbox:inbox",
    "List proposals that wait for a decision, the longest waiting first.",
    WATCH,
    Option(["--all", "every"], is_flag=True, help="All projects, not only this one."),
)

add_command(
    app,
    "watch",
    "watching:watch_run",
    "Attach to a run and show what it does, until Ctrl-C. Leaving stops nothing.",
    RUN,
)

add_run_commands(app)
add_schedule_commands(app)
add_model_commands(app)
add_service_commands(app)
