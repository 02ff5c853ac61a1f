"""What the events and items of OpenAI's Responses API say, in any of the forms in which servers write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnwright_provider.domain.tool_calls import arguments_of, id_of, key_of, text_of
from turnwright_provider.domain.wires.json_fold import objects

_TEXTS: Final = {"output_text": "text", "text": "text", "refusal": "refusal"}
"""Part of a message -> the field with its text."""

_WHOLE: Final = ("text", "refusal", "arguments")
"""Where an event has a text that is complete."""


def ids_of(event: Mapping[str, Any]) -> list[str]:
    """The ids in an event that may name its item, in short form."""
    item = event.get("item")
    named = item if isinstance(item, dict) else {}
    ids = (event.get("item_id"), event.get("call_id"), *(named.get(name) for name in ("id", "item_id", "call_id")))
    return [key_of(one) for one in map(id_of, ids) if one]


def whole_text(event: Mapping[str, Any]) -> str:
    """The complete text of an event, or of the part of an item in it."""
    part = event.get("part")
    written = part if isinstance(part, dict) else event
    return next((text for name in _WHOLE if (text := arguments_of(written.get(name)))), "")


def texts_in(written: Mapping[str, Any]) -> dict[str, list[str]]:
    """The texts of a complete item, in their parts."""
    match written.get("type"):
        case "message":
            if isinstance(content := written.get("content"), str):
                return {"text": [content]}
            parts = objects(content)
            return {"text": [text_of(part.get(_TEXTS.get(text_of(part.get("type")), ""))) for part in parts]}
        case "reasoning":
            return {
                member: [text_of(part.get("text")) for part in objects(written.get(member))]
                for member in ("summary", "content")
            }
        case "function_call":
            return {"arguments": [arguments_of(written.get("arguments"))]}
        case _:
            return {}
