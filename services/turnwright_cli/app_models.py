"""Commands that manage models."""

from __future__ import annotations

from typing import Final

import click
from click import Argument, Option

from turnwright_cli.options import AS_JSON, AT_LEAST_0, SERVER, add_command, add_group, offering

_ALIAS: Final = Argument(
    ["alias"], metavar="ALIAS", help="Alias of the model.", shell_complete=offering("completing:models")
)
_OF_MODEL: Final = (
    Option(["--context"], type=AT_LEAST_0, metavar="TOKENS", help="Length of its context window; 0: ask its vendor."),
    Option(["--output"], type=AT_LEAST_0, metavar="TOKENS", help="Longest reply that it writes; 0: ask its vendor."),
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
        AS_JSON,
        SERVER,
        work="models:list_models",
    )
    add_command(
        models,
        "add",
        "models:add_model",
        "Add a model, or change which model an alias names. What you leave out is asked from its vendor.",
        Argument(["alias"], metavar="ALIAS", help="Name that runs use."),
        Argument(["vendor_model"], metavar="VENDOR/MODEL", help="The vendor and its own name for the model."),
        *_OF_MODEL,
        AS_JSON,
        SERVER,
    )
    add_command(
        models,
        "set",
        "models:set_model",
        "Change the properties of a model; what you leave out stays as it is.",
        _ALIAS,
        Option(["--model", "vendor_model"], metavar="VENDOR/MODEL", help="Another vendor or model."),
        *_OF_MODEL,
        AS_JSON,
        SERVER,
    )
    add_command(
        models,
        "remove",
        "models:remove_model",
        "Remove a model, so that runs can no longer name it.",
        _ALIAS,
        AS_JSON,
        SERVER,
    )
