"""`models`: the registered models, and what is known about each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import asdict
from turnwright.types.v1 import model_pb2

from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import CHECK_MODELS_TIMEOUT_S, TABLES, Invocation
from turnwright_cli.output import Column, answer, complain, show_list
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_session
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT
from turnwright_core.models import window_of
from turnwright_core.suggestions import did_you_mean
from turnwright_core.wire.runs import model_from_pb
from turnwright_provider.domain.usage import parse_price

CAPABILITIES: Final = ("tools", "images", "reasoning", "response_format", "prefill")


def _changed(before: model_pb2.Model, options: Mapping[str, Any]) -> model_pb2.Model:
    model = model_pb2.Model()
    model.CopyFrom(before)
    given = {name: value for name, value in options.items() if value is not None}
    if can := {name: given[name] for name in CAPABILITIES if name in given}:
        model.capabilities.MergeFrom(model_pb2.Capabilities(**can))
    model.vendor_model = given.get("vendor_model") or before.vendor_model
    model.context_length = given.get("context", before.context_length)
    model.output_tokens_max = given.get("output", before.output_tokens_max)
    if "price" in given:
        model.price.CopyFrom(_price_of(given["price"]))
    return model


def _price_of(text: str) -> model_pb2.Price:
    try:
        return model_pb2.Price(**asdict(parse_price(text)))
    except ValueError as error:
        raise usage(f"--price {error}.") from None


async def list_models(call: Invocation) -> int:
    async with open_session(call.settings, reads=("provider",)) as session:
        models = await session.client.list_models()
        status = await session.client.get_status(check_models=True, timeout_s=CHECK_MODELS_TIMEOUT_S)
    checks = {check.model.alias: check for check in status.models}

    def known(model: model_pb2.Model) -> model_pb2.Model:
        return check.model if (check := checks.get(model.alias)) else model

    def usable(model: model_pb2.Model) -> str:
        check = checks.get(model.alias)
        return "not checked" if check is None else "yes" if check.usable else check.problem or "not usable"

    columns: Sequence[Column[model_pb2.Model]] = (
        Column("alias", lambda one: one.alias),
        Column("vendor/model", lambda one: one.vendor_model),
        Column("context", lambda one: context_words(known(one))),
        Column("output", lambda one: output_words(known(one))),
        Column("can", lambda one: can_words(known(one))),
        Column("usable", usable),
    )
    return show_list(
        call,
        models,
        columns,
        empty="No models yet. Add one with `turnwright models add ALIAS VENDOR/MODEL`, or name any as vendor/model.",
    )


async def add_model(call: Invocation, *, alias: str, **options: object) -> int:
    async with open_session(call.settings) as session:
        model = await session.client.set_model(_changed(model_pb2.Model(alias=alias), options))
    return _say_model(call, model)


async def set_model(call: Invocation, *, alias: str, **options: object) -> int:
    async with open_session(call.settings) as session:
        known = {model.alias: model for model in await session.client.list_models()}
        if alias not in known:
            near = did_you_mean(alias, known)
            raise usage(f"There is no model {safe_line(alias)}{near}. `turnwright models add` adds one.")
        model = await session.client.set_model(_changed(known[alias], options))
    return _say_model(call, model)


def _say_model(call: Invocation, model: model_pb2.Model) -> int:
    context = f"{model.context_length:,}" if model.context_length else "as its vendor says"
    facts = [f"context {context}", (words := output_words(model)) and f"output {words}", can_words(model)]
    facts.append(price_words(model))
    description = ", ".join(filter(None, facts))
    for prefix in TABLES.values():
        if not call.as_json and (variable := f"{prefix}{model.alias}") in os.environ:
            complain(f"{variable} is set here: the next command that starts its own services uses it.")
    return answer(call, [model], f"{safe_line(model.alias)}: {safe_line(model.vendor_model)}, {description}")


async def remove_model(call: Invocation, *, alias: str) -> int:
    async with open_session(call.settings) as session:
        await session.client.delete_model(alias)
        left = await session.client.list_models()
    if not call.as_json and (variable := f"{TABLES['models']}{alias}") in os.environ:
        complain(f"{variable} is set here: the next command that starts its own services adds the model again.")
    return answer(call, left, f"{safe_line(alias)}: removed")


def context_words(model: model_pb2.Model) -> str:
    known = f"{model.context_length:,}" if model.context_length else f"{CONTEXT_LENGTH_DEFAULT:,} (assumed)"
    if (window := window_of(model_from_pb(model))) != model.context_length:
        return f"{window:,} (named in a refusal; else {known})"
    return known


def output_words(model: model_pb2.Model) -> str:
    return f"{model.output_tokens_max:,}" if model.output_tokens_max else ""


def price_words(model: model_pb2.Model) -> str:
    price = model.price
    return f"${price.input_usd:g}/{price.cached_usd:g}/{price.output_usd:g}" if model.HasField("price") else ""


def can_words(model: model_pb2.Model) -> str:
    known = ((name, getattr(model.capabilities, name)) for name in CAPABILITIES if model.capabilities.HasField(name))
    return ", ".join(name.replace("_", " ") if can else f"no {name.replace('_', ' ')}" for name, can in known)
