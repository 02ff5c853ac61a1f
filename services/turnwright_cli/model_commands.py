"""The commands of models; they join those of app.py."""
# ruff: noqa: PLC0415 - imports stand in the bodies, so that --help and usage errors load nothing else

from __future__ import annotations

from typing import Any

import click

from turnwright_cli import options
from turnwright_cli.app import app
from turnwright_cli.options import AT_LEAST_0, Group, finish, settings_of


@app.group(cls=Group, invoke_without_command=True)
@options.as_json
@options.server
@click.pass_context
def models(context: click.Context, /, as_json: bool, server: str | None) -> None:
    """The models that runs may name, and whether each could be called now."""
    context.obj = {"as_json": as_json, "server": server}
    if context.invoked_subcommand is None:
        from turnwright_cli.models import list_models

        finish(list_models(settings_of(server=server), as_json=as_json))


@models.command("add")
@click.argument("alias", metavar="ALIAS", help="Name that runs use.")
@click.argument("vendor_model", metavar="VENDOR/MODEL", help="The vendor and its own name for the model.")
@click.option("--context", type=AT_LEAST_0, default=0, metavar="TOKENS", help="Length of its context window.")
@options.as_json
@options.server
@click.pass_obj
def models_add(
    before: dict[str, Any], /, alias: str, vendor_model: str, context: int, as_json: bool, server: str | None
) -> None:
    """Add a model, or give its alias to another one."""
    from turnwright_cli.models import add_model

    settings = settings_of(server=server or before["server"])
    finish(add_model(settings, alias, vendor_model, context, as_json=as_json or before["as_json"]))


@models.command("set")
@click.argument("alias", metavar="ALIAS", help="Alias of the model.")
@click.option("--model", "vendor_model", metavar="VENDOR/MODEL", help="Another vendor or model.")
@click.option("--context", type=AT_LEAST_0, metavar="TOKENS", help="Length of its context window; 0: unknown.")
@options.as_json
@options.server
@click.pass_obj
def models_set(
    before: dict[str, Any],
    /,
    alias: str,
    vendor_model: str | None,
    context: int | None,
    as_json: bool,
    server: str | None,
) -> None:
    """Correct what is known of a model."""
    from turnwright_cli.models import set_model

    settings = settings_of(server=server or before["server"])
    finish(set_model(settings, alias, vendor_model, context, as_json=as_json or before["as_json"]))


@models.command("remove")
@click.argument("alias", metavar="ALIAS", help="Alias of the model.")
@options.as_json
@options.server
@click.pass_obj
def models_remove(before: dict[str, Any], /, alias: str, as_json: bool, server: str | None) -> None:
    """Take a model away, so that no run can name it any more."""
    from turnwright_cli.models import remove_model

    settings = settings_of(server=server or before["server"])
    finish(remove_model(settings, alias, as_json=as_json or before["as_json"]))
