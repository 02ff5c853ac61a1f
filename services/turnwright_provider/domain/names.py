"""Names of models: `vendor/model`, and whether a list of models denies one. Source: RU307; architecture 15."""

from __future__ import annotations

import re
from typing import Any, Final

from turnwright_core.errors import Reason, fault
from turnwright_core.json_text import parse_json

_ANY_NAME: Final = frozenset({"llamacpp", "me"})
"""`owned_by` of servers that hold one model and answer to whatever name they are called by."""

_DATE: Final = re.compile(r"-20\d{6}")


def split_vendor_model(vendor_model: str) -> tuple[str, str]:
    """Vendor and the vendor's own name of the model. Raises InvalidError for a text that is not `vendor/model`."""
    vendor, slash, model = vendor_model.partition("/")
    if not (vendor and slash and model):
        raise fault(
            Reason.INVALID_FIELD,
            f"{vendor_model!r} is not of the form `vendor/model`; write, for example, `openai/gpt-5-mini`.",
            field="model.vendor_model",
        )
    return vendor, model


def listed_models(body: bytes) -> frozenset[str] | None:
    """The names in a list of models, whose field is `data`, or `models` at Google and Ollama.

    None when it lists nothing that could deny a name.
    """
    try:
        parsed: Any = parse_json(body.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    items = parsed.get("data", parsed.get("models")) if isinstance(parsed, dict) else parsed
    models = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    if not models or any(model.get("owned_by") in _ANY_NAME for model in models):
        return None
    names = {name for model in models for name in (model.get("id"), model.get("name")) if isinstance(name, str)}
    return frozenset(names) or None


def is_listed(model: str, names: frozenset[str]) -> bool:
    """Whether a list has a model, be it with Ollama's `:latest`, without OpenRouter's `:variant`, or with a date.

    Anthropic lists `claude-sonnet-4-20250514` alone, and answers to `claude-sonnet-4-0` as well.
    """
    bare = model.rpartition(":")[0] or model
    if {model, f"{model}:latest", bare, f"models/{model}"} & names:
        return True
    undated = model.removesuffix("-latest").removesuffix("-0")
    return any(name.startswith(f"{undated}-") and _DATE.fullmatch(name[len(undated) :]) for name in names)
