"""A conversation as Gemini's contents: two roles, lists of parts, tools answered in the user's next turn by name.

Source: research/wire 2.1; cases wire/gemini, wire/vertex.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from turnwright_core.chat.message import Image, Message, Part, Role, ServerBlock, Text, ThinkingBlock, ToolCall
from turnwright_provider.domain.wires.blocks import TEXT, object_in, ordered_blocks
from turnwright_provider.domain.wires.gemini_reply import THOUGHT
from turnwright_provider.domain.wires.images import inline_image
from turnwright_provider.domain.wires.prepare_messages import tool_names

GeminiPart = dict[str, Any]
"""A part on the wire."""


def conversation(messages: Sequence[Message], unsigned: str = "") -> tuple[list[GeminiPart], list[GeminiPart]]:
    """The parts of the system instruction, and the contents.

    `unsigned` is a placeholder signature for calls without one, for models that require one.
    """
    names = tool_names(messages)
    system: list[GeminiPart] = []
    contents: list[GeminiPart] = []
    for message in messages:
        match message.role:
            case Role.SYSTEM:
                system += _shown(part for part in message.parts if isinstance(part, Text))
            case Role.ASSISTANT:
                _add(contents, "model", _signed(list(_reply(message)), unsigned))
            case Role.TOOL:
                _add(contents, "user", _answer(message, names))
            case Role.USER:
                _add(contents, "user", _shown(message.parts))
    return system, contents


def _add(contents: list[GeminiPart], role: str, parts: list[GeminiPart]) -> None:
    """Turns of one role are joined: a call must be answered in the very next turn."""
    if parts and contents and contents[-1]["role"] == role:
        contents[-1]["parts"] += parts
    elif parts:
        contents.append({"role": role, "parts": parts})


def _shown(parts: Iterable[Part]) -> list[GeminiPart]:
    """Empty texts are refused, and left out."""
    return [
        _image(part) if isinstance(part, Image) else {"text": part.text}
        for part in parts
        if isinstance(part, Image) or part.text
    ]


def _image(image: Image) -> GeminiPart:
    if found := inline_image(image):
        return {"inlineData": {"mimeType": found[0], "data": found[1]}}
    mime = image.mime or mimetypes.guess_type(urlsplit(image.url).path)[0]
    return {"fileData": {"fileUri": image.url, **({"mimeType": mime} if mime else {})}}


def _answer(message: Message, names: Mapping[str, str]) -> list[GeminiPart]:
    """The result of a call, followed by its images."""
    response = {
        "id": message.call_id,
        "name": message.tool or names.get(message.call_id, ""),
        "response": {"error" if message.failed else "result": message.text},
    }
    return [{"functionResponse": response}, *_shown(part for part in message.parts if isinstance(part, Image))]


def _reply(message: Message) -> Iterator[GeminiPart]:
    for item in ordered_blocks(message):
        match item:
            case Text() if item.text:
                yield {"text": item.text}
            case ThinkingBlock() if item.type == TEXT:
                yield {"text": item.text, **_signature(item.signature)}
            case ThinkingBlock() if item.type == THOUGHT:
                yield {"text": item.text, "thought": True, **_signature(item.signature)}
            case ServerBlock():
                yield from [part] if (part := object_in(item.json)) else []
            case ToolCall():
                call = {"id": item.id, "name": item.name, "args": object_in(item.arguments)}
                yield {"functionCall": call, **_signature(item.signature)}


def _signature(signature: str) -> GeminiPart:
    return {"thoughtSignature": signature} if signature else {}


def _signed(parts: list[GeminiPart], unsigned: str) -> list[GeminiPart]:
    """The parts, with a signature on the first call if none has one: of parallel calls, only the first is signed."""
    calls = [part for part in parts if "functionCall" in part]
    if unsigned and calls and not any("thoughtSignature" in part for part in calls):
        calls[0]["thoughtSignature"] = unsigned
    return parts
