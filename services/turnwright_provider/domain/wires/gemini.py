"""Google's Gemini, of its own API and of Vertex: `generateContent`, streamed.

    thinkingConfig      refused by models that do not think, or not so much or so little: left out
    responseMimeType    refused beside tools by models before 3: left out
    systemInstruction   refused by Gemma: its text opens the conversation

Each is dropped once, and the caller remembers for which models.
Source: research/wire 2.1, 2.2; cases wire/gemini, wire/vertex.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar, Final
from urllib.parse import quote, urlsplit

from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.models import ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ToolSpec
from turnwright_provider.domain.wires.blocks import TEXT, inline_image, object_in, ordered_blocks
from turnwright_provider.domain.wires.gemini_reply import THOUGHT, GeminiFold
from turnwright_provider.domain.wires.prepare_messages import tool_names
from turnwright_provider.domain.wires.wire import Wire, WireRequest, encode_body

# A conversation as Gemini's contents: two roles, lists of parts, tools answered in the user's next turn by name.
#
# Source: research/wire 2.1; cases wire/gemini, wire/vertex.

GeminiPart = JsonObject
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


_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

_INSISTS: Final = re.compile(r"gemini-(?:[3-9]|\d{2}|.*latest)")
"""Models that refuse a call without a signature, such as another model's."""

_ANY_SIGNATURE: Final = "skip_thought_signature_validator"
"""Google's word for a call of another model."""


class GeminiWire(Wire):
    """The wire of Gemini."""

    name = "gemini"
    vendor = "Gemini"
    counted = ("contents", "systemInstruction", "tools", "toolConfig")
    not_taken: ClassVar = {
        "metadata": "Gemini has no place for it.",
        "cache": "Gemini takes no marks: it caches by itself.",
    }
    models_path = "/models?pageSize=1000"
    usual_path = "/v1beta"
    names_in_errors: ClassVar = {
        "reasoning": ("thinking", "budget"),
        "response_format": ("mime type", "mime_type", "mimetype", "json mode", "response_schema", "response schema"),
        "system": ("developer instruction", "system instruction", "system_instruction"),
    }

    def headers(self, api_key: str) -> Mapping[str, str]:
        return {"x-goog-api-key": api_key} if api_key else {}

    def fold(self) -> GeminiFold:
        return GeminiFold()

    def _path(self, call: ModelCall) -> str:
        return f"/{_resource(call)}:streamGenerateContent?alt=sse"

    def _count(self, body: JsonObject, call: ModelCall) -> WireRequest:
        if (model := _resource(call)).startswith("models/"):
            # Vertex takes the fields as they are.
            body = {"generateContentRequest": {"model": model, **body}}
        return WireRequest(f"/{model}:countTokens", encode_body(body, {}))

    def _takes(self, block: ThinkingBlock) -> bool:
        return block.type in (TEXT, THOUGHT)

    def _body(
        self, call: ModelCall, messages: Sequence[Message], without: AbstractSet[str], dropped: dict[str, str]
    ) -> JsonObject:
        if call.tool_choice and call.tool_choice.single:
            dropped["tool_choice"] = "Gemini cannot be asked for one call at most."
        system, contents = conversation(messages, _ANY_SIGNATURE if _INSISTS.search(call.model) else "")
        body: JsonObject = {"contents": contents}
        if system and contents and "system" not in without:
            body["systemInstruction"] = {"parts": system}
        elif system:
            body["contents"] = [{"role": "user", "parts": system}, *contents]
        if call.tools:
            body["tools"] = [{"functionDeclarations": self._tools(call, "", _tool)}]
            body |= _choice(call)
        if config := self._config(call, without):
            body["generationConfig"] = config
        return body

    def droppable_fields(self, call: ModelCall) -> set[str]:
        sent = super().droppable_fields(call)
        return sent | {"system"} if any(message.role is Role.SYSTEM for message in call.messages) else sent

    def _config(self, call: ModelCall, without: AbstractSet[str]) -> JsonObject:
        config: JsonObject = {
            "temperature": call.temperature,
            "maxOutputTokens": call.output_tokens_max,
            "stopSequences": list(call.stop) or None,
        }
        config |= self._sent(call, without)
        return {name: value for name, value in config.items() if value is not None}

    def _optional(self, call: ModelCall) -> dict[str, JsonMapping]:
        amount, form = self._reasoning(call), call.response_format
        budget = 0 if amount is None else amount.budget_tokens
        thinking = {"thinkingBudget": budget, **({"includeThoughts": True} if budget else {})}
        schema = None if form is None else form.schema
        return {
            "reasoning": {} if amount is None else {"thinkingConfig": thinking},
            "response_format": {}
            if form is None
            else {"responseMimeType": "application/json", "responseJsonSchema": schema},
        }


def _resource(call: ModelCall) -> str:
    """The resource name of the model; one without a collection is Google's."""
    return quote(call.model if "/" in call.model else f"models/{call.model}", safe="/@")


def _tool(tool: ToolSpec) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}


def _choice(call: ModelCall) -> JsonObject:
    choice = call.tool_choice or ToolChoice()
    config: JsonObject = {"mode": "ANY" if choice.tool else _MODES[choice.mode]}
    if choice.tool:
        config["allowedFunctionNames"] = [choice.tool]
    if config["mode"] == "AUTO" and any(tool.strict for tool in call.tools):
        # The model still decides whether to call, but its arguments must match their schemas.
        config["mode"] = "VALIDATED"
    is_needed = call.tool_choice is not None or config["mode"] == "VALIDATED"
    return {"toolConfig": {"functionCallingConfig": config}} if is_needed else {}
