"""The commands for the Model Context Protocol: servers of it as tools, and the agent as one."""

from __future__ import annotations

from typing import Final

import click
from click import Argument, Option

from turnwright_cli.options import COMMON, DEPLOYMENT, FILE, PROJECT, SERVER, add_command, add_group

_NAME: Final = Argument(["name"], metavar="NAME", help="Name of the server, the first part of its tools' names.")
_EFFECTS: Final = ("read_only", "idempotent", "outside", "hints")


def add_mcp(app: click.Group) -> None:
    """Add them to the command line."""
    mcp = add_group(
        app,
        "mcp",
        "Manage MCP servers, whose tools the agent gets; without a command, list them.",
        DEPLOYMENT,
        *COMMON,
        work="mcp:list_servers",
    )
    add_command(mcp, "list", "mcp:list_servers", "List the MCP servers, as without a command.", DEPLOYMENT)
    add_command(
        mcp,
        "add",
        "mcp:add_server",
        "Register an MCP server by its command, behind --, or by its URL, and look what it brings.",
        _NAME,
        Argument(["command"], metavar="[COMMAND...]", nargs=-1, help="Program and arguments that start it."),
        Option(["--url"], metavar="URL", default="", help="Where it speaks streamable HTTP."),
        Option(["--env"], nargs=2, multiple=True, metavar="NAME VALUE", help="A variable of the program; repeatable."),
        Option(["--header"], nargs=2, multiple=True, metavar="NAME VALUE", help="A header of HTTP; repeatable."),
        Option(["--oauth"], is_flag=True, help="Send the token in its private file: docs/mcp.md."),
        Option(
            ["--effect"],
            type=(str, click.Choice(_EFFECTS)),
            multiple=True,
            metavar="TOOL EFFECT",
            help="What is believed of a tool, of * for all others: read_only, idempotent, outside, hints; repeatable "
            "[hints]",
        ),
        Option(["--sampling"], metavar="MODEL", default="", help="Model that it may ask by way of the agent [none]"),
        Option(["--tool", "only"], multiple=True, metavar="NAME", help="Only this tool of it; repeatable [all]"),
        Option(["--timeout", "seconds"], type=click.FloatRange(0.001, 3600), metavar="S", help="Limit of a call [60]"),
        DEPLOYMENT,
    )
    add_command(
        mcp,
        "import",
        "mcp:import_servers",
        "Register the MCP servers of a file `.mcp.json`, as it is now.",
        Argument(["file"], metavar="[FILE]", required=False, type=FILE, help="The file [.mcp.json of the project]"),
    )
    add_command(mcp, "remove", "tools:remove_server", "Remove an MCP server.", _NAME, DEPLOYMENT)
    add_command(
        mcp,
        "check",
        "tools:check_servers",
        "Ask the servers now, and tell what is wrong with them and with their tools.",
        Argument(["name"], metavar="NAME", required=False, default="", help="Only this server."),
    )
    add_command(
        mcp,
        "serve",
        "mcp:serve",
        "Offer the agent to other agents: act, ask, runs and decide, as tools of an MCP server on standard input and "
        "output.",
        Option(["-m", "--model"], metavar="MODEL", help="Model of new runs: an alias, or vendor/model."),
        common=(PROJECT, SERVER),
    )
