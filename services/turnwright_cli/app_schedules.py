"""Commands that manage the schedules of a run."""

from __future__ import annotations

from typing import Final

import click
from click import Argument, Option

from turnwright_cli.options import COMMON, RUN, add_command, add_group

_ID: Final = Argument(["schedule_id"], metavar="ID", help="Id of the schedule: letters, digits, _ and -.")


def add_schedule_commands(app: click.Group) -> None:
    schedules = add_group(
        app,
        "schedules",
        "Manage the schedules of a run: what the agent does again and again, without anybody who asks.",
    )
    add_command(
        schedules, "list", "schedules:list_schedules", "List the schedules of a run, with times in UTC.", RUN, *COMMON
    )
    add_command(
        schedules,
        "add",
        "schedules:add_schedule",
        "Add a schedule, or replace the one with this id. With a prompt, it begins a loop each time; without one, the "
        "model only reads in its next turn that the time has come.",
        RUN,
        _ID,
        Argument(["prompt"], metavar="[PROMPT]", default="", help="What to do each time; - reads standard input."),
        Option(["--cron"], metavar="EXPRESSION", default="", help="When: five fields, in UTC, such as '0 3 * * 1-5'."),
        Option(["--every"], metavar="TIME", default="", help="How often: such as 90s, 10m, 2h or 1d."),
        *COMMON,
    )
    add_command(
        schedules,
        "remove",
        "schedules:remove_schedule",
        "Remove a schedule; what it has begun goes on.",
        RUN,
        _ID,
        *COMMON,
    )
