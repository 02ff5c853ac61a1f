"""`models`: the models that runs may name, and what is known of each."""

from __future__ import annotations

import os

from rich.text import Text
from turnwright.types.v1 import model_pb2

from turnwright_cli.config import CHECK_MODELS_TIMEOUT_S
from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.json_lines import show_lines
from turnwright_cli.output import complain, console, put
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_session
from turnwright_cli.tables import Cell, Column, show_table
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT
from turnwright_core.suggestions import did_you_mean
from turnwright_store.config import CONTEXT_PREFIX, MODEL_PREFIX


async def list_models(call: Invocation) -> int:
    async with open_session(call.settings) as session:
        models = await session.client.list_models()
        status = await session.client.get_status(check_models=True, timeout_s=CHECK_MODELS_TIMEOUT_S)
    if call.as_json:
        return show_lines(models)
    problems = {check.alias: "" if check.usable else check.problem or "not usable" for check in status.models}
    rows = []
    for model in models:
        problem = problems.get(model.alias, "not checked")
        usable = Cell(problem or "yes", "red" if problem else "green")
        rows.append((model.alias, model.vendor_model, context_words(model), usable))
    show_table(
        tuple(map(Column, ("alias", "vendor/model", "context", "usable"))),
        rows,
        empty="No models yet. Add one with `turnwright models add ALIAS VENDOR/MODEL`, or name any as vendor/model.",
    )
    return 0


async def add_model(call: Invocation, *, alias: str, vendor_model: str, context: int) -> int:
    async with open_session(call.settings) as session:
        model = await session.client.add_model(alias, vendor_model, context)
    return _tell_model(call, model)


async def set_model(call: Invocation, *, alias: str, vendor_model: str | None, context: int | None) -> int:
    """Change what is said of a model; the rest stays. Raises FailureError where there is none."""
    async with open_session(call.settings) as session:
        known = {model.alias: model for model in await session.client.list_models()}
        if alias not in known:
            near = did_you_mean(alias, known)
            raise usage(f"There is no model {safe_line(alias)}{near}. `turnwright models add` adds one.")
        model = known[alias]
        model = await session.client.add_model(
            alias, vendor_model or model.vendor_model, model.context_length if context is None else context
        )
    return _tell_model(call, model)


def _tell_model(call: Invocation, model: model_pb2.Model) -> int:
    if call.as_json:
        return show_lines([model])
    put(console(), Text(f"{safe_line(model.alias)}: {safe_line(model.vendor_model)}, context {context_words(model)}"))
    for prefix in (MODEL_PREFIX, CONTEXT_PREFIX):
        if (variable := f"{prefix}{model.alias}") in os.environ:
            complain(f"{variable} is set here: the next command that starts its own services goes by it.")
    return 0


async def remove_model(call: Invocation, *, alias: str) -> int:
    """Take a model away; runs that use it need another one from their next loop on."""
    async with open_session(call.settings) as session:
        await session.client.remove_model(alias)
        left = await session.client.list_models()
    if call.as_json:
        return show_lines(left)
    put(console(), Text(f"{safe_line(alias)}: removed"))
    if (variable := f"{MODEL_PREFIX}{alias}") in os.environ:
        complain(f"{variable} is set here: the next command that starts its own services adds the model again.")
    return 0


def context_words(model: model_pb2.Model) -> str:
    """The context window of a model in tokens, and whether that is known or assumed."""
    if model.context_length:
        return f"{model.context_length:,}"
    return f"{CONTEXT_LENGTH_DEFAULT:,} (assumed)"
