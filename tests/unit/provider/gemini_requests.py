"""Recorded requests of Gemini: what call they say, and in what a request of ours may differ from them."""

import base64
import json
from typing import Any

from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec

OURS = "v/m"

_NAMED = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig"}
_CONFIG = {
    "temperature",
    "maxOutputTokens",
    "stopSequences",
    "responseMimeType",
    "responseJsonSchema",
    "thinkingConfig",
}
_MODES = {"AUTO": "auto", "NONE": "none", "ANY": "required", "VALIDATED": "auto"}


def camel(value: Any) -> Any:
    """The names of a request in the form that Google documents; it takes `snake_case` as well."""
    if isinstance(value, list):
        return [camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    # What is under these is the caller's, and not Google's.
    kept = ("args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema")
    named = {_camel(name): one for name, one in value.items()}
    return {name: one if name in kept else camel(one) for name, one in named.items()}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def call_of(body: dict[str, Any]) -> ModelCall:
    """The call that a recorded request makes; fields that we have no name for are its `extra`."""
    config = body.get("generationConfig", {})
    system = [
        Message(Role.SYSTEM, (Text(part["text"]),)) for part in body.get("systemInstruction", {}).get("parts", ())
    ]
    thinking, calling = config.get("thinkingConfig", {}), body.get("toolConfig", {}).get("functionCallingConfig")
    declared = [tool for tools in body.get("tools", ()) for tool in tools.get("functionDeclarations", ())]
    extra: dict[str, Any] = {name: value for name, value in body.items() if name not in _NAMED}
    if rest := {name: value for name, value in config.items() if name not in _CONFIG}:
        extra["generationConfig"] = rest
    if tools := [tools for tools in body.get("tools", ()) if "functionDeclarations" not in tools]:
        extra["tools"] = tools
    if rest := {name: value for name, value in body.get("toolConfig", {}).items() if name != "functionCallingConfig"}:
        extra["toolConfig"] = rest
    amount = thinking.get("thinkingBudget")
    if amount is None or amount < 0 or bool(amount) != thinking.get("includeThoughts", False):
        amount = None
    if amount is None and thinking:
        extra.setdefault("generationConfig", {})["thinkingConfig"] = thinking
    return ModelCall(
        "gemini-2.5-pro",
        (*system, *(message for content in body["contents"] for message in _messages(content))),
        config.get("temperature"),
        config.get("maxOutputTokens"),
        tools=tuple(_tool(tool, is_strict=bool(calling) and calling["mode"] == "VALIDATED") for tool in declared),
        tool_choice=None if not calling or calling["mode"] == "VALIDATED" else _choice(calling),
        stop=tuple(config.get("stopSequences", ())),
        response_format=ResponseFormat(config.get("responseJsonSchema")) if "responseMimeType" in config else None,
        reasoning=None if amount is None else Reasoning(tokens=amount),
        extra=extra,
        vendor_model=OURS,
    )


def _role(content: dict[str, Any]) -> str:
    """Older clients leave the user's out, or answer calls by a role of its own."""
    role = content.get("role", "user")
    return "user" if role == "function" else role


def _messages(content: dict[str, Any]) -> list[Message]:
    if _role(content) == "model":
        return [_reply(content["parts"])]
    messages: list[Message] = []
    for part in content["parts"]:
        if "functionResponse" in part:
            messages.append(_answer(part["functionResponse"]))
        else:
            messages.append(Message(Role.USER, (_shown(part),)))
    return messages


def _shown(part: dict[str, Any]) -> Part:
    if "inlineData" in part:
        return Image(part["inlineData"]["mimeType"], base64.b64decode(part["inlineData"]["data"] + "==", b"-_"))
    if "fileData" in part:
        return Image(part["fileData"].get("mimeType", ""), url=part["fileData"]["fileUri"])
    return Text(part["text"])


def _answer(response: dict[str, Any]) -> Message:
    said = response["response"]
    text = "error" if "error" in said else "result"
    return Message(
        Role.TOOL,
        (Text(said[text] if isinstance(said.get(text), str) else json.dumps(said)),),
        call_id=response.get("id") or response["name"],
        tool=response["name"],
        failed="error" in said,
    )


def _reply(parts: list[dict[str, Any]]) -> Message:
    texts: list[Text] = []
    calls: list[ToolCall] = []
    thinking: list[ThinkingBlock] = []
    blocks: list[ServerBlock] = []
    chars = 0
    for place, part in enumerate(parts):
        signature = part.get("thoughtSignature", "")
        if "functionCall" in part:
            call = part["functionCall"]
            arguments, own = json.dumps(call.get("args", {})), call.get("id") or call["name"]
            calls.append(ToolCall(call["name"], arguments, len(calls), own, signature=signature, block=place))
        elif part.get("thought"):
            thinking.append(ThinkingBlock("thought", place, text=part["text"], signature=signature))
        elif "text" not in part:
            blocks.append(ServerBlock(place, json.dumps(part)))
        else:
            end = chars + len(part["text"])
            if signature:
                thinking.append(ThinkingBlock("text", place, signature=signature, data=f"{chars}:{end}"))
            texts.append(Text(part["text"]))
            chars = end
    return Message(
        Role.ASSISTANT, tuple(texts), "", tuple(calls), tuple(thinking), tuple(blocks), vendor_model=OURS
    )  # fmt: skip


def _tool(tool: dict[str, Any], *, is_strict: bool) -> ToolSpec:
    schema = tool.get("parametersJsonSchema") or json_schema(
        tool.get("parameters", {"type": "object", "properties": {}})
    )
    return ToolSpec(tool["name"], tool.get("description", ""), schema, is_strict)


def _choice(calling: dict[str, Any]) -> ToolChoice:
    names = calling.get("allowedFunctionNames") or [""]
    return ToolChoice(_MODES[calling["mode"]], names[0])


_TYPES = ("", "string", "number", "integer", "boolean", "array", "object")


def json_schema(schema: Any) -> Any:
    """A schema of Google's own dialect as JSON Schema: types are in capitals there, or numbers."""
    if isinstance(schema, list):
        return [json_schema(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    told = {name: json_schema(one) for name, one in schema.items()}
    if isinstance(kind, str | int):
        told["type"] = kind.lower() if isinstance(kind, str) else _TYPES[kind]
    return told


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """A request without the differences that mean nothing, each of which stands here or in a function below."""
    # What is empty is as good as absent.
    kept = {name: value for name, value in body.items() if value not in ({}, [])}
    kept["contents"] = []
    for content in body["contents"]:
        parts = [_normal_part(part) for part in content["parts"]]
        # Turns of one role are as good as one.
        if kept["contents"] and kept["contents"][-1]["role"] == _role(content):
            kept["contents"][-1]["parts"] += parts
        else:
            kept["contents"].append({"role": _role(content), "parts": parts})
    if "systemInstruction" in kept:
        # Its role says nothing.
        kept["systemInstruction"] = kept["systemInstruction"]["parts"]
    if "tools" in kept:
        # One list of declarations is as good as several.
        declared = [tool for tools in kept["tools"] for tool in tools.get("functionDeclarations", ())]
        others = [tools for tools in kept["tools"] if "functionDeclarations" not in tools]
        kept["tools"] = [[_tool(tool, is_strict=False) for tool in declared], *others]
    return kept


def _normal_part(part: dict[str, Any]) -> dict[str, Any]:
    part = {name: dict(one) if isinstance(one, dict) else one for name, one in part.items()}
    if "inlineData" in part:
        # Base64 has two alphabets.
        part["inlineData"]["data"] = part["inlineData"]["data"].translate({45: "+", 95: "/"}).rstrip("=")
    if call := part.get("functionCall"):
        # Ours names each call, so that two calls of one tool are told apart.
        part["functionCall"] = {"name": call["name"], "args": call.get("args", {})}
    if response := part.get("functionResponse"):
        said = response["response"]
        is_ours = len(said) == 1 and isinstance(said.get("result", said.get("error")), str)
        # Everybody puts an answer into an object of their own; ours holds a text.
        text = json.dumps(said) if not is_ours else said.get("result", said.get("error"))
        part["functionResponse"] = {"name": response["name"], "said": text}
    return part
