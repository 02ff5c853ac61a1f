"""Commands that manage runs: list, show and change them, their plans, their packets."""

from __future__ import annotations

from typing import Final

import click
from click import Argument, Option

from turnwright_cli.options import (
    AT_LEAST_0,
    CALLS,
    COMMON,
    FILE,
    LIMITS,
    RUN,
    WATCH,
    WITHOUT,
    WITHOUT_PROJECT,
    add_command,
    add_group,
    offering,
)

_PLAN_ID: Final = Option(["--plan-id"], default="", metavar="ID", help="Which plan [main]")
_TEXT_FILE: Final = Option(["--file"], metavar="FILE", type=FILE, help="Read the text from this file.")


def add_run_commands(app: click.Group) -> None:
    _add_runs(app)
    _add_packets(app)
    _add_changes(app)
    _add_plan(app)


def _add_runs(app: click.Group) -> None:
    runs = add_group(
        app,
        "runs",
        "Manage the runs of a project; without a command, list them, latest first.",
        WATCH,
        *COMMON,
        work="run_list:runs",
    )
    add_command(
        runs,
        "show",
        "lists:show_run",
        "Show one run: its loops, and what waits for a decision.\n\n"
        "--diff shows what its commands changed in files, as recorded; in a pipe `patch -p1` takes it.",
        RUN,
        Option(["--full"], is_flag=True, help="Show long proposals in full."),
        Option(["--turns"], is_flag=True, help="Show its turns too, with each command and how it ended."),
        Option(["--diff"], is_flag=True, help="Show only what its commands changed in files."),
        Option(["--packet"], metavar="N", type=AT_LEAST_0, default=0, help="Show only the packet of turn N."),
    )
    add_command(runs, "list", "run_list:list_runs", "List the runs, as without a command.")
    add_command(runs, "abort", "lists:abort_run", "End the active loop of a run.", RUN)
    add_command(
        runs,
        "remove",
        "steering:remove_run",
        "Remove a run with everything that belongs to it alone; its loops must have ended.",
        RUN,
    )


def _add_packets(app: click.Group) -> None:
    add_command(
        app,
        "explain",
        "explaining:explain",
        "Show what a packet consists of: the budget, each piece with its tokens and why it is in, and where it leaves "
        "the prefix of the turn before.",
        RUN,
        Argument(["turn"], metavar="[TURN]", default=0, type=AT_LEAST_0, help="Number of the turn [the latest]"),
        Option(["--next", "following"], is_flag=True, help="Preview the packet of the next turn; writes nothing."),
        Option(["--full"], is_flag=True, help="Show all pieces, not only the largest ones."),
    )
    add_command(
        app,
        "replay",
        "explaining:replay",
        "Assemble the packet of every stored turn again, and show those that differ from what was sent. Exits with 1 "
        "if some do.",
        RUN,
    )


def _add_changes(app: click.Group) -> None:
    add_command(
        app,
        "undo",
        "changes:undo",
        "Take back what a turn changed in files, if they are still what it made of them. Exits with 1 if some files "
        "stay as they are, with 5 if all do.",
        RUN,
        Argument(["turn"], metavar="[TURN]", default=0, type=AT_LEAST_0, help="Number of the turn [the latest]"),
    )
    add_command(
        app,
        "fork",
        "steering:fork_run",
        "Fork a run: make one that starts with its state.",
        RUN,
        Option(["--to"], default="", metavar="ALIAS", help="Alias of the fork; by default one is generated."),
        Option(["--turn"], default=0, metavar="N", type=AT_LEAST_0, help="Begin at the end of this turn."),
    )
    add_command(
        app,
        "rename",
        "steering:rename_run",
        "Change the alias of a run; its loops must have ended.",
        RUN,
        Argument(["new"], metavar="NEW", help="The new alias."),
    )
    add_command(
        app,
        "inject",
        "steering:inject_message",
        "Send the model a message for its next turn, without giving it a task.",
        RUN,
        Argument(["message"], metavar="MESSAGE", help="Message to the model; - reads standard input."),
    )
    add_command(
        app,
        "config",
        "steering:configure_run",
        "Show or change the settings of a run. Limits replace all existing limits of the run.",
        RUN,
        Option(
            ["--model"],
            metavar="MODEL",
            help="Alias of the model for later loops, or vendor/model.",
            shell_complete=offering("completing:models"),
        ),
        Option(["--temperature"], metavar="T", type=click.FloatRange(0, 2), help="Sampling temperature."),
        Option(["--persona-file"], metavar="FILE", type=FILE, help="Persona; before the first turn only."),
        Option(["--context-limit"], metavar="TOKENS", type=AT_LEAST_0, help="Context window; 0: the model's."),
        *LIMITS,
        Option(["--yolo/--no-yolo"], default=None, help="Accept every proposal of the run."),
        CALLS,
    )


def _add_plan(app: click.Group) -> None:
    plan = add_group(app, "plan", "Manage the plans of a run: what it intends to do, and its progress.")
    add_command(
        plan,
        "show",
        "plans:show_plans",
        "Show the plans of a run, or one of them.",
        RUN,
        Option(["--plan-id"], default="", metavar="ID", help="Only this plan [all; with --version main]"),
        Option(["--version"], default=0, metavar="N", type=AT_LEAST_0, help="This version of it [the latest]"),
    )
    add_command(plan, "list", "plans:list_plans", "List the plans of a run.", RUN)
    add_command(
        plan,
        "set",
        "plans:set_plan",
        "Create a plan, or replace it with a new version.\n\n"
        "An item is an object with content, priority (high, medium, low), status (pending, in_progress, completed, "
        "cancelled, blocked) and, optionally, evidence_paths.",
        RUN,
        Argument(["text"], metavar="[TEXT]", required=False, help="The plan, in Markdown; - reads standard input."),
        _TEXT_FILE,
        Option(["--items"], metavar="JSON", help="A plan of items: a JSON array; - reads standard input."),
        Option(["--mode"], default="", metavar="WORD", help="The mode in which it was written."),
        _PLAN_ID,
    )
    add_command(
        plan,
        "update",
        "plans:update_plan",
        "Append to a plan without changing what it says.",
        RUN,
        Argument(["text"], metavar="[TEXT]", required=False, help="What to add; - reads standard input."),
        _TEXT_FILE,
        _PLAN_ID,
    )
    add_command(plan, "rm", "plans:remove_plan", "Remove a plan; its versions can still be shown.", RUN, _PLAN_ID)


_ALIAS: Final = Argument(
    ["alias"], metavar="ALIAS", help="Alias of the model.", shell_complete=offering("completing:models")
)
_OF_MODEL: Final = (
    Option(["--context"], type=AT_LEAST_0, metavar="TOKENS", help="Length of its context window; 0: ask its vendor."),
    Option(["--output"], type=AT_LEAST_0, metavar="TOKENS", help="Longest reply that it writes; 0: ask its vendor."),
    Option(
        ["--price"],
        metavar="IN/CACHED/OUT",
        help="What a million tokens of each kind cost, in US dollars, where its vendor tells no cost.",
    ),
    Option(["--tools/--no-tools"], default=None, help="Whether it calls tools natively."),
    Option(["--images/--no-images"], default=None, help="Whether it reads images."),
    Option(["--reasoning/--no-reasoning"], default=None, help="Whether it reasons before it answers."),
    Option(["--response-format/--no-response-format"], default=None, help="Whether it answers by a JSON Schema."),
    Option(["--prefill/--no-prefill"], default=None, help="Whether it continues a message of its own."),
)


def add_model_commands(app: click.Group) -> None:
    models = add_group(
        app,
        "models",
        "Manage models; without a command, list them and whether each can be called now.",
        *WITHOUT_PROJECT,
        work="models:list_models",
    )
    add_command(models, "list", "models:list_models", "List the models, as without a command.", common=WITHOUT_PROJECT)
    add_command(
        models,
        "add",
        "models:add_model",
        "Add a model, or change which model an alias names. What you leave out is asked from its vendor.",
        Argument(["alias"], metavar="ALIAS", help="Name that runs use."),
        Argument(["vendor_model"], metavar="VENDOR/MODEL", help="The vendor and its own name for the model."),
        *_OF_MODEL,
        common=WITHOUT_PROJECT,
    )
    add_command(
        models,
        "set",
        "models:set_model",
        "Change the properties of a model; what you leave out stays as it is.",
        _ALIAS,
        Option(["--model", "vendor_model"], metavar="VENDOR/MODEL", help="Another vendor or model."),
        *_OF_MODEL,
        common=WITHOUT_PROJECT,
    )
    add_command(
        models,
        "remove",
        "models:remove_model",
        "Remove a model, so that runs can no longer name it.",
        _ALIAS,
        common=WITHOUT_PROJECT,
    )


_ID: Final = Argument(["schedule_id"], metavar="ID", help="Id of the schedule: letters, digits, _ and -.")


def add_schedule_commands(app: click.Group) -> None:
    schedules = add_group(
        app,
        "schedules",
        "Manage the schedules of a run: what the agent does again and again, without anybody who asks.",
    )
    add_command(schedules, "list", "steering:list_schedules", "List the schedules of a run, with times in UTC.", RUN)
    add_command(
        schedules,
        "add",
        "steering:add_schedule",
        "Add a schedule, or replace the one with this id. With a prompt, it begins a loop each time; without one, the "
        "model only reads in its next turn that the time has come.",
        RUN,
        _ID,
        Argument(["prompt"], metavar="[PROMPT]", default="", help="What to do each time; - reads standard input."),
        Option(["--cron"], metavar="EXPRESSION", default="", help="When: five fields, in UTC, such as '0 3 * * 1-5'."),
        Option(["--every"], metavar="TIME", default="", help="How often: such as 90s, 10m, 2h or 1d."),
        Option(["--mode"], type=click.Choice(["ask", "act"]), help="Mode of its loops [that of the latest task]"),
        Option(["-m", "--model"], metavar="MODEL", default="", help="Model of its loops [that of the run]"),
        Option(["-y", "--yolo"], is_flag=True, help="Its loops accept every proposal without asking."),
        WITHOUT,
        *LIMITS,
    )
    add_command(
        schedules, "remove", "steering:remove_schedule", "Remove a schedule; what it has begun goes on.", RUN, _ID
    )
