"""The commands for what a deployment keeps of its people and tells others: the audit, quotas, webhooks, tools."""

from __future__ import annotations

from typing import Final

import click
from click import Argument, Option

from turnwright_cli.options import AT_LEAST_0, COMMON, DEPLOYMENT, FILE, PROJECT, SERVER, add_command, add_group

_METRIC: Final = Argument(
    ["metric"], metavar="METRIC",
    type=click.Choice([
        "tokens-day", "tokens-month", "cost-day", "cost-month", "commands-minute", "runs", "calls", "unsent-bytes",
    ]),
    help="tokens-day, tokens-month, cost-day, cost-month, commands-minute; at once: runs, calls, unsent-bytes.",
)  # fmt: skip
_SUBJECT: Final = Option(
    ["--of", "subject"], metavar="SUBJECT", default="",
    help="Whose: user:NAME or group:NAME, with --deployment also project:NAME [all together]",
)  # fmt: skip
_SERVER_NAME: Final = Argument(["name"], metavar="NAME", help="The first part of the names of its tools.")
_OF_ALL: Final = Option(["--deployment"], is_flag=True, help="For all projects, not for this one.")
_WEBHOOK: Final = Argument(["name"], metavar="NAME", help="Name of the webhook.")


def add_administration(app: click.Group) -> None:
    add_command(
        app,
        "audit",
        "administration:show_audit",
        "List who has changed what in the project, the latest first, with times in UTC.",
        DEPLOYMENT,
        Option(["--refused"], is_flag=True, help="List calls that were refused instead."),
        Option(["--since"], metavar="TIME", default="", help="Only of this time: such as 30m, 12h or 7d."),
        Option(["--most"], type=AT_LEAST_0, default=100, metavar="N", help="At most so many; 0: all [100]"),
    )
    quota = add_group(
        app,
        "quota",
        "Manage what models may take in a day or a month; without a command, list it.",
        DEPLOYMENT,
        *COMMON,
        work="administration:list_quotas",
    )
    add_command(quota, "list", "administration:list_quotas", "List the quotas, as without a command.", DEPLOYMENT)
    add_command(
        quota,
        "set",
        "administration:set_quota",
        "Set a quota, or its limit. Loops end before a call of a model for which it has no room.",
        _METRIC,
        Argument(["limit"], type=click.FloatRange(0, 1e12), metavar="LIMIT", help="Tokens, or US dollars."),
        _SUBJECT,
        DEPLOYMENT,
    )
    add_command(
        quota, "remove", "administration:remove_quota", "Remove a quota, with what it knows of what was used.",
        _METRIC, _SUBJECT, DEPLOYMENT,
    )  # fmt: skip
    _add_webhooks(app)


def _add_webhooks(app: click.Group) -> None:
    webhook = add_group(
        app,
        "webhook",
        "Manage HTTP servers that are told what becomes of runs; without a command, list them.",
        *COMMON,
        work="administration:list_webhooks",
    )
    add_command(webhook, "list", "administration:list_webhooks", "List the webhooks, as without a command.")
    add_command(
        webhook,
        "set",
        "administration:set_webhook",
        "Set a webhook, and show the secret by which its server verifies what it is sent.",
        _WEBHOOK,
        Argument(["url"], metavar="URL", help="Where it listens: https://HOST/PATH."),
        Option(
            ["--on", "events"],
            multiple=True,
            type=click.Choice(["ended", "waiting"]),
            help="What it is told: that a loop has ended, or waits for a decision; repeatable [ended]",
        ),
        Option(["--run"], metavar="ALIAS", default="", help="The only run that it is told about [all]"),
    )
    add_command(
        webhook,
        "remove",
        "administration:remove_webhook",
        "Remove a webhook, with what it is still to be told.",
        _WEBHOOK,
    )
    add_command(
        webhook,
        "deliveries",
        "administration:list_deliveries",
        "List what webhooks were told, the latest first.",
        Option(["--webhook"], metavar="NAME", default="", help="Only what this one was told."),
        Option(
            ["--state"],
            type=click.Choice(["pending", "delivered", "dead"]),
            help="Only what waits, has arrived, or was given up.",
        ),
        Option(["--most"], type=click.IntRange(1, 1000), default=100, metavar="N", help="At most so many [100]"),
    )
    add_command(
        webhook,
        "retry",
        "administration:retry_delivery",
        "Send something again, at once and with all attempts.",
        Argument(["delivery"], metavar="ID", help="Id of the delivery."),
    )
    _add_tools(app)


def _add_tools(app: click.Group) -> None:
    tools = add_group(
        app,
        "tools",
        "Manage servers of tools; without a command, list which tools the next task gets, and what they cost.",
        *COMMON,
        work="tools:list_tools",
    )
    add_command(tools, "list", "tools:list_tools", "List the tools, as without a command.")
    add_command(
        tools,
        "add",
        "tools:add_server",
        "Register a server of tools for the project, and look what it brings.",
        _SERVER_NAME,
        Argument(["address"], metavar="ADDR", help="Where it listens: HOST:PORT."),
        Option(
            ["--tls"],
            type=click.Choice(["auto", "none", "deployment", "public"]),
            default="auto",
            help="How it is called, see docs/tools.md [auto]",
        ),
        Option(
            ["--header", "headers"], nargs=2, multiple=True, metavar="NAME VALUE",
            help="A header of each call; repeatable.",
        ),
        Option(
            ["--secret-header", "secret_headers"], nargs=2, multiple=True, metavar="NAME SECRET",
            help="A header whose value is a secret of the operator's file; repeatable.",
        ),
        Option(["--tool", "only"], multiple=True, metavar="NAME", help="Only this tool of it; repeatable [all]"),
        Option(
            ["--timeout", "seconds"], type=click.FloatRange(0.001, 3600), metavar="S", help="Time limit of a call [60]"
        ),
        _OF_ALL,
    )  # fmt: skip
    add_command(tools, "remove", "tools:remove_server", "Remove a server of tools.", _SERVER_NAME, _OF_ALL)
    add_command(
        tools,
        "check",
        "tools:check_servers",
        "Ask the servers of tools now, and tell what is wrong with them and with their tools.",
        Argument(["name"], metavar="NAME", required=False, default="", help="Only this server."),
    )


_NAME: Final = Argument(["name"], metavar="NAME", help="Name of the server, the first part of its tools' names.")
_EFFECTS: Final = ("read_only", "idempotent", "outside", "hints")


def add_mcp(app: click.Group) -> None:
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
        mcp, "check", "tools:check_servers",
        "Ask the servers now, and tell what is wrong with them and with their tools.",
        Argument(["name"], metavar="NAME", required=False, default="", help="Only this server."),
    )  # fmt: skip
    _add_logins(mcp)
    add_command(
        mcp, "serve", "mcp:serve",
        "Offer the agent to other agents: act, ask, runs and decide, as tools of an MCP server on standard input and "
        "output, or by HTTP.",
        Option(["-m", "--model"], metavar="MODEL", help="Model of new runs: an alias, or vendor/model."),
        Option(["--http"], is_flag=True, help="By streamable HTTP: callers send tokens, and have their own rights."),
        Option(["--host"], metavar="HOST", help="Address that --http listens on [127.0.0.1]"),
        Option(["--port"], type=click.IntRange(0, 65535), metavar="PORT", help="Its port; 0: a free one [7447]"),
        Option(["--allow-host"], multiple=True, metavar="NAME",
               help="Further name by which callers may call it, as through a proxy; repeatable."),
        common=(PROJECT, SERVER),
    )  # fmt: skip


def _add_logins(mcp: click.Group) -> None:
    add_command(
        mcp,
        "login",
        "mcp_logins:log_in",
        "Log in at an MCP server that wants OAuth: open the address that is printed, and come back.",
        _NAME,
        Option(["--port"], type=click.IntRange(1, 65535), default=7449, metavar="PORT",
               help="Where the browser comes back to on this host [7449]"),
        Option(["--paste"], is_flag=True, help="Read the address that the browser ends at from standard input."),
        Option(["--client-id"], metavar="ID", default="",
               help="Client that was registered at the authorization server by hand [one is registered]"),
        Option(["--client-secret"], type=FILE, metavar="FILE", help="Private file with the secret of that client."),
        DEPLOYMENT,
    )  # fmt: skip
    add_command(
        mcp, "logout", "mcp_logins:log_out", "End a login: its tokens are revoked and deleted.", _NAME, DEPLOYMENT
    )
