"""Validation of the contract's limits before work starts; errors name the field, the limit and the value.

Source: architecture 10 (every input has a limit); the comments of the messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any, Final

import msgspec
from turnwright_values.types import (
    Budget,
    LoopSettings,
    Mode,
    Model,
    ResponseFormat,
    RunSettings,
    ToolDescription,
)

from turnwright_core.chat.prompt_edits import PromptEdit, check_edits, image_paths_in
from turnwright_core.checks import check_bytes, check_chars, check_count, check_words, invalid
from turnwright_core.json_schema import SCHEMA_BYTES_MAX, SCHEMA_S_MAX, check_schema, countdown
from turnwright_core.limits import (
    IMAGES_MAX,
    NAME_CHARS_MAX,
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    PATH_CHARS_MAX,
    PERSONA_BYTES_MAX,
    PROMPT_BYTES_MAX,
    SPAN_S_MAX,
)
from turnwright_core.models import PRICE_USD_MAX
from turnwright_core.titles import check_title
from turnwright_store.domain.write_rules import check_attributes, check_path

ROOT_CHARS_MAX: Final = 4096
"""Longest root directory of a project (PATH_MAX of Linux)."""

TOKENS_LIMIT: Final = 2**53
"""Upper limit for token budgets: integers that JSON represents exactly."""

TOOLS_MAX: Final = 100
"""Most tools that a loop is limited to."""

CLIENT_TOOLS_MAX: Final = 32
"""Most tools of a client in a loop."""

CLIENT_TOOL_DOC_CHARS_MAX: Final = 8192
CLIENT_TOOL_SCHEMA_BYTES_MAX: Final = 16 * 1024
"""As for tools of plugins: both are in every model call."""

CLIENT_TOOL: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
RUN_ALIAS: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")
NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARS_MAX}}}")


def check_name(field: str, name: str, pattern: re.Pattern[str] = NAME) -> None:
    """Refuse a name that does not match the pattern."""
    check_chars(field, name, NAME_CHARS_MAX)
    if not pattern.fullmatch(name):
        raise invalid(field, f"{field} must match {pattern.pattern}; it is {name!r}.")


def check_run_settings(settings: RunSettings) -> None:
    """Refuse settings out of range (RU098)."""
    if settings.temperature is not None and not 0 <= settings.temperature <= 2:
        raise invalid("temperature", f"temperature must be 0 to 2; it is {settings.temperature}.")
    if settings.context_limit is not None and settings.context_limit < 1024:
        raise invalid("context_limit", f"context_limit must be at least 1024 tokens; it is {settings.context_limit}.")
    if settings.persona is not None:
        check_bytes("persona", settings.persona, PERSONA_BYTES_MAX)
    check_budget(settings.budget, "run_settings.budget")
    check_title("title", settings.title)


def check_task(prompt: str, settings: LoopSettings) -> None:
    """Refuse a task without a prompt or a mode, or with settings that no loop can have."""
    if not prompt:
        raise invalid("prompt", "prompt is required.")
    check_bytes("prompt", prompt, PROMPT_BYTES_MAX)
    if settings.mode is Mode.UNSPECIFIED:
        raise invalid("settings.mode", "settings.mode must be ask or act.")
    check_loop_settings(settings)


def check_loop_settings(settings: LoopSettings) -> None:
    """Refuse what no loop can have. Raises INVALID_FIELD, LIMIT_EXCEEDED."""
    check_budget(settings.budget, "settings.budget")
    _check_answer_format(settings.response_format)
    _check_shown(settings.images, settings.edits)
    _check_client_tools(settings.client_tools)
    check_count("settings.tools", len(settings.tools), TOOLS_MAX)
    for tool in settings.tools:
        check_chars("settings.tools", tool, NAME_CHARS_MAX)


def _check_answer_format(form: ResponseFormat | None) -> None:
    """Refuse a response format with an invalid schema."""
    if form is None or not form.schema:
        return
    check_bytes("settings.response_format.schema", form.schema, SCHEMA_BYTES_MAX)
    _check_schema(form.schema, "settings.response_format.schema")


def _check_schema(schema: str, field: str, seconds_max: float = SCHEMA_S_MAX) -> dict[str, Any]:
    try:
        return check_schema(schema, seconds_max)
    except ValueError as error:
        raise invalid(field, f"{error}.") from None


def _check_shown(images: Sequence[str], edits: Sequence[PromptEdit]) -> None:
    """Check the images and edits of a prompt: their number, and that each is a path."""
    check_edits(edits, "settings.edits")
    if any(edit.plugin for edit in edits):
        raise invalid("settings.edits.plugin", "Only the runtime says which plugin made an edit: leave `plugin` empty.")
    edited = image_paths_in(edits)
    check_count("settings.images", len(images) + len(edited), IMAGES_MAX)
    for path in images:
        check_path(path, field="settings.images")
    for path in edited:
        check_path(path, field="settings.edits.parts")


def _check_client_tools(tools: Sequence[ToolDescription]) -> None:
    """Refuse tools of a client that no model could be offered."""
    field = "settings.client_tools"
    check_count(field, len(tools), CLIENT_TOOLS_MAX)
    if len({tool.name for tool in tools}) < len(tools):
        raise invalid(field, "Each tool needs a name of its own.")
    left_s = countdown(SCHEMA_S_MAX)
    for tool in tools:
        if not CLIENT_TOOL.fullmatch(tool.name):
            raise invalid(field, f"A tool's name must match {CLIENT_TOOL.pattern}; it is {tool.name!r}.")
        check_chars(field, tool.description, CLIENT_TOOL_DOC_CHARS_MAX)
        if not tool.description.strip():
            raise invalid(field, f"The tool {tool.name} needs a description for the model.")
        if tool.parameters:
            check_attributes(tool.parameters, CLIENT_TOOL_SCHEMA_BYTES_MAX, field)
            schema = _check_schema(tool.parameters, field, left_s())
            if schema.get("type", "object") != "object":
                raise invalid(field, f"The parameters of the tool {tool.name} must have the type `object`.")


def check_budget(budget: Budget | None, field: str) -> None:
    """Refuse limits that are negative, infinite or not numbers."""
    if budget is None:
        return
    if not (isfinite(budget.cost_usd_max) and budget.cost_usd_max >= 0):
        raise invalid(field, f"cost_usd_max must be 0 or more US dollars; it is {budget.cost_usd_max}.")
    if not 0 <= budget.wall_s_max <= SPAN_S_MAX:
        raise invalid(field, f"wall_max must be 0 to {SPAN_S_MAX} seconds; it is {budget.wall_s_max}.")
    if budget.tokens_max >= TOKENS_LIMIT:
        raise invalid(field, f"tokens_max must be below {TOKENS_LIMIT}; it is {budget.tokens_max}.")


def check_model(model: Model) -> None:
    """Refuse a model whose alias or `vendor/model` is malformed."""
    check_name("alias", model.alias)
    check_words("vendor_model", model.vendor_model, PATH_CHARS_MAX)
    vendor, slash, name = model.vendor_model.partition("/")
    if not (vendor and slash and name):
        raise invalid("vendor_model", f"vendor_model must be vendor/model; it is {model.vendor_model!r}.")
    for name, usd in msgspec.structs.asdict(model.price).items() if model.price else ():
        if not 0 <= usd < PRICE_USD_MAX:
            limit = f"from 0 to below {PRICE_USD_MAX}"
            raise invalid(f"price.{name}", f"A price is in US dollars for a million tokens, {limit}; it is {usd:g}.")


def page_size(wanted: int) -> int:
    """Items of a page: the default for 0, never more than the limit."""
    check_count("page_size", wanted, PAGE_SIZE_MAX)
    return wanted or PAGE_SIZE_DEFAULT
