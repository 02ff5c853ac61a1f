"""The commands, in the order of --help: their arguments, and the function that implements each."""

from __future__ import annotations

from typing import Final

import click
from click import Argument, Option

from turnwright_cli.app_runs import add_model_commands, add_run_commands, add_schedule_commands
from turnwright_cli.app_services import add_service_commands
from turnwright_cli.options import (
    AS_JSON,
    CALLS,
    COMMON,
    LIMITS,
    PROMPT_EDITS,
    RUN,
    SERVER,
    WATCH,
    WITHOUT,
    add_command,
    make_app,
    offering,
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
