"""The commands that say who may do what: grants, approval rules, and tokens."""

from __future__ import annotations

from typing import Final

import click
from click import Argument, Option

from turnwright_cli.options import AT_LEAST_0, COMMON, DEPLOYMENT, FILE, SERVER, WITHOUT_PROJECT, add_command, add_group

_RULES_OF_RUN: Final = Option(["--run"], metavar="RUN", help="Those of this run, not of the project.")
_TOOL: Final = Option(["--tool"], metavar="TOOL", default="sh", help="The tool [sh].")
_PRINCIPAL: Final = Option(["--principal"], metavar="NAME", default="", help="Only for runs that work for this person.")
_RULES_FILE: Final = Option(["--rules"], metavar="FILE", type=FILE, help="The rules of this file, not those that hold.")
_GRANTED: Final = Argument(["subject"], metavar="SUBJECT", help="user:NAME, group:NAME, or * for everybody.")
_ROLE: Final = click.Choice(["viewer", "member", "owner", "operator"])
_RIGHT: Final = click.Choice(["read", "run", "decide", "edit", "files", "command", "manage", "admin"])
_AUDIENCE: Final = click.Choice(["executor", "store", "assembler", "provider", "mcp"])


def add_rights(app: click.Group) -> None:
    policy = add_group(app, "policy", "Say what happens without asking, and try rules and voters on what has happened.")
    _add_rules(policy)
    _add_trials(policy)
    _add_grants(app)
    _add_tokens(app)


def _add_grants(app: click.Group) -> None:
    work = "rights:list_grants"
    about = "Manage who may do what in the project; without a command, list it."
    grant = add_group(app, "grant", about, DEPLOYMENT, *COMMON, work=work)
    add_command(grant, "list", work, "List the grants, as without a command.", DEPLOYMENT)
    add_command(
        grant,
        "set",
        "rights:set_grant",
        "Give somebody a role, in place of the one that they have.",
        Argument(["role"], metavar="ROLE", type=_ROLE, help="viewer, member or owner; of the deployment: operator."),
        _GRANTED,
        Option(["--without"], metavar="RIGHT", type=_RIGHT, multiple=True, help="Leave this right out; repeatable."),
        Option(["--until"], metavar="TIME", default="", help="End it after this time: such as 12h or 30d."),
        DEPLOYMENT,
    )
    add_command(grant, "remove", "rights:remove_grant", "Take a role away.", _GRANTED, DEPLOYMENT)
    add_command(app, "identity", "rights:show_identity", "Show who you are to the services, and what you may do.")


def _add_rules(policy: click.Group) -> None:
    add_command(
        policy,
        "list",
        "rules:list_rules",
        "List the approval rules that hold in the project, or in a run.",
        Option(["--run"], metavar="RUN", help="Also those of this run."),
    )
    add_command(
        policy,
        "set",
        "rules:set_rule",
        "Allow effects without asking, have somebody asked about them, or deny them.",
        Argument(
            ["verdict"], metavar="VERDICT", type=click.Choice(["allow", "ask", "deny"]), help="allow, ask or deny."
        ),
        Argument(["target"], metavar="[TARGET]", default="", help="As `git push *` or `src/**`; none: anything."),
        Option(["--tool"], metavar="TOOL", default="", help="Only for this tool."),
        _RULES_OF_RUN,
        _PRINCIPAL,
        Option(["--mode"], type=click.Choice(["act", "ask"]), help="Only in this mode."),
        Option(["--network"], is_flag=True, help="Let commands that are allowed use the network."),
    )
    add_command(
        policy,
        "remove",
        "rules:remove_rule",
        "Remove an approval rule.",
        Argument(["rule"], metavar="NUMBER", type=AT_LEAST_0, help="Its number, as `policy list` shows it."),
        _RULES_OF_RUN,
    )


def _add_trials(policy: click.Group) -> None:
    add_command(
        policy,
        "test",
        "rules:try_rules",
        "Show what the approval rules say of a command line, a path or an address, and which rule decides.",
        Argument(["target"], metavar="TARGET", help="The command line, path or address."),
        _TOOL,
        Option(["--run"], metavar="RUN", help="Also by the rules of this run."),
        _PRINCIPAL,
        Option(["--mode"], type=click.Choice(["act", "ask"]), default="act", help="In this mode [act]."),
        _RULES_FILE,
    )
    add_command(
        policy,
        "backtest",
        "rules:backtest",
        "Show what approval rules would have decided otherwise in stored runs, or with --hook, which verdicts would "
        "differ with a voter; changes nothing. Exits with 1 if some would.",
        Option(
            ["--hook"], metavar="MODULE:FUNCTION", multiple=True, help="A voter or a plugin's register; repeatable."
        ),
        Option(["--verdicts"], is_flag=True, help="Judge the turns again with the plugins that are loaded here."),
        _RULES_FILE,
        Option(["--run"], metavar="[PROJECT/]RUN", multiple=True, help="Test on this run; repeatable."),
        Option(["--all", "every"], is_flag=True, help="Test on every run of the project."),
    )


def _add_tokens(app: click.Group) -> None:
    token = add_group(app, "token", "Manage tokens with fewer rights than this deployment's secret, and print keys.")
    add_command(
        token,
        "create",
        "rights:create_token",
        "Print a token, made by the running services, or where none run from this deployment's secret.",
        Option(["--principal"], metavar="NAME", required=True, help="Who will use it."),
        Option(
            ["--kind"],
            type=click.Choice(["person", "model", "plugin", "service"]),
            default="person",
            help="What will use it [person]",
        ),
        Option(["--project", "projects"], metavar="NAME", multiple=True, help="Limit it to this project; repeatable."),
        Option(["--group", "groups"], metavar="NAME", multiple=True, help="A group that they belong to; repeatable."),
        Option(["--days"], metavar="N", type=click.IntRange(1, 400), default=30, help="How long it is valid [30]"),
        Option(["--audience"], type=_AUDIENCE, default="executor", help="The service that takes it [executor]"),
        Option(["--offline"], is_flag=True, help="Make it of the secret here, also where services run."),
        common=(SERVER,),
    )
    add_command(
        token,
        "list",
        "rights:list_tokens",
        "List your tokens that services have made, or revoked; for operators everybody's.",
        common=WITHOUT_PROJECT,
    )
    add_command(
        token,
        "revoke",
        "rights:revoke_token",
        "Revoke a token: calls with it are refused within seconds.",
        Argument(["token"], metavar="TOKEN", help="Its id, as `token list` shows it, or the token itself."),
        common=WITHOUT_PROJECT,
    )
    add_command(
        token,
        "key",
        "rights:print_key",
        "Print the key that verifies the tokens for a service, for its TURNWRIGHT_KEYS.",
        Argument(["audience"], metavar="SERVICE", type=_AUDIENCE, help="executor, store, assembler or provider."),
        common=(),
    )
