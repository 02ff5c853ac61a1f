"""Commands that manage runs: list, show and change them, their plans, their packets."""

from __future__ import annotations

from typing import Final

import click
from click import Argument, Option

from turnwright_cli.options import AT_LEAST_0, CALLS, COMMON, FILE, LIMITS, RUN, WATCH, add_command, add_group, offering

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
        *COMMON,
    )
    add_command(runs, "abort", "lists:abort_run", "End the active loop of a run.", RUN, *COMMON)
    add_command(
        runs,
        "remove",
        "steering:remove_run",
        "Remove a run with everything that belongs to it alone; its loops must have ended.",
        RUN,
        *COMMON,
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
        *COMMON,
    )
    add_command(
        app,
        "replay",
        "explaining:replay",
        "Assemble the packet of every stored turn again, and show those that differ from what was sent. Exits with 1 "
        "if some do.",
        RUN,
        *COMMON,
    )


def _add_changes(app: click.Group) -> None:
    add_command(
        app,
        "undo",
        "undoing:undo",
        "Take back what a turn changed in files, if they are still what it made of them. Exits with 1 if some files "
        "stay as they are, with 5 if all do.",
        RUN,
        Argument(["turn"], metavar="[TURN]", default=0, type=AT_LEAST_0, help="Number of the turn [the latest]"),
        *COMMON,
    )
    add_command(
        app,
        "fork",
        "steering:fork_run",
        "Fork a run: make one that starts with its state.",
        RUN,
        Option(["--to"], default="", metavar="ALIAS", help="Alias of the fork; by default one is generated."),
        Option(["--turn"], default=0, metavar="N", type=AT_LEAST_0, help="Begin at the end of this turn."),
        *COMMON,
    )
    add_command(
        app,
        "rename",
        "steering:rename_run",
        "Change the alias of a run; its loops must have ended.",
        RUN,
        Argument(["new"], metavar="NEW", help="The new alias."),
        *COMMON,
    )
    add_command(
        app,
        "inject",
        "steering:inject_message",
        "Send the model a message for its next turn, without giving it a task.",
        RUN,
        Argument(["message"], metavar="MESSAGE", help="Message to the model; - reads standard input."),
        *COMMON,
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
        *COMMON,
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
        *COMMON,
    )
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
        *COMMON,
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
        *COMMON,
    )
    add_command(
        plan,
        "rm",
        "plans:remove_plan",
        "Remove a plan; its versions can still be shown.",
        RUN,
        _PLAN_ID,
        *COMMON,
    )
