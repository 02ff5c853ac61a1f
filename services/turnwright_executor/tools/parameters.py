"""The parameters of a tool, from which the JSON Schema for native calls is generated.

Names are those of the command's attributes after parsing; `body` is the command's body. Types are those of JSON;
arguments become texts, like the attributes of tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from turnwright_core.json_text import JsonObject

BODY: Final = "body"

BODY_NAMES: Final = (BODY, "content")
"""Arguments that stand for the body."""


class ToolParameter(Struct, frozen=True):
    """An attribute of a command, or its body. `words` are the allowed values; empty: any."""

    name: str
    about: str
    type: str = "string"
    required: bool = False
    words: tuple[str, ...] = ()


VISIBILITY: Final = ToolParameter(
    "visibility", "How much of it you see from then on.", words=("visible", "summarized", "archived")
)
SUMMARY: Final = ToolParameter("summary", "What stays of it when it is summarized, at most 80 characters.")


def schema_of(parameters: Sequence[ToolParameter]) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": {one.name: _property(one) for one in parameters}}
    if required := [one.name for one in parameters if one.required]:
        schema["required"] = required
    return {**schema, "additionalProperties": False}


def _property(parameter: ToolParameter) -> JsonObject:
    made: JsonObject = {"type": parameter.type, "description": parameter.about}
    return {**made, "enum": list(parameter.words)} if parameter.words else made
