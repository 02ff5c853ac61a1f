"""Recorded requests of chat completions: what call they say, and in what a request of ours may differ from them."""

import base64
import json
from typing import Any

from turnwright_values.replies import ThinkingBlock, ToolCall

from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec

OURS = "v/m"

_ROLES = {"developer": Role.SYSTEM}

_NAMED = {
    *("model", "messages", "stream", "stream_options", "temperature", "max_tokens", "max_completion_tokens", "tools"),
    *("tool_choice", "parallel_tool_calls", "stop", "response_format", "metadata", "reasoning_effort"),
}


def call_of(body: dict[str, Any]) -> ModelCall:
    """The call that a recorded request makes; fields that we have no name for are its `extra`."""
    amount, extra = _amount(body), {name: value for name, value in body.items() if name not in _NAMED}
    if amount is not None:
        extra.pop("reasoning", None)
    return ModelCall(
        body.get("model", ""),
        tuple(_message(message) for message in body["messages"]),
        body.get("temperature"),
        body.get("max_tokens") or body.get("max_completion_tokens"),
        tools=tuple(_tool(tool) for tool in body.get("tools", ())),
        tool_choice=_choice(body),
        stop=tuple(body.get("stop", ())),
        response_format=_form(body.get("response_format")),
        reasoning=amount,
        metadata=body.get("metadata", {}),
        extra=extra,
        vendor_model=OURS,
    )


def _amount(body: dict[str, Any]) -> Reasoning | None:
    if word := body.get("reasoning_effort") or body.get("reasoning", {}).get("effort"):
        return Reasoning("off" if word == "none" else word)
    tokens = body.get("reasoning", {}).get("max_tokens")
    return Reasoning(tokens=tokens) if tokens else None


def _message(message: dict[str, Any]) -> Message:
    role = _ROLES.get(message["role"]) or Role(message["role"])
    parts = _parts(message)
    calls = tuple(_call(place, call) for place, call in enumerate(message.get("tool_calls") or ()))
    if role is not Role.ASSISTANT:
        return Message(role, parts, call_id=message.get("tool_call_id", ""))
    return Message(role, parts, calls=calls, thinking=tuple(_thinking(message)), vendor_model=OURS)


def _parts(message: dict[str, Any]) -> tuple[Part, ...]:
    content = message.get("content") or ""
    listed = [{"type": "text", "text": content}] if isinstance(content, str) else content
    parts = [_part(part) for part in listed if part["type"] in ("text", "image_url")]
    if "cache_control" in message:
        parts[-1] = Text(parts[-1].text, cache=True)
    return tuple(parts)


def _part(part: dict[str, Any]) -> Part:
    marked = "cache_control" in part
    if part["type"] == "text":
        return Text(part["text"], marked)
    url = part["image_url"]["url"]
    if not url.startswith("data:"):
        return Image(url=url, cache=marked)
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return Image(kind, base64.b64decode(data), cache=marked)


def _call(place: int, call: dict[str, Any]) -> ToolCall:
    signed = json.dumps(call["extra_content"]) if "extra_content" in call else ""
    return ToolCall(call["function"]["name"], call["function"]["arguments"], place, call["id"], signature=signed)


def _thinking(message: dict[str, Any]) -> list[ThinkingBlock]:
    blocks = [
        ThinkingBlock(name, text=message[name]) for name in ("reasoning", "reasoning_content") if message.get(name)
    ]
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    thoughts = [part["thinking"] for part in parts if part["type"] == "thinking"]
    blocks += [ThinkingBlock("thinking", text="".join(text["text"] for text in thought)) for thought in thoughts]
    for detail in message.get("reasoning_details", ()):
        text_name = "summary" if detail["type"] == "reasoning.summary" else "text"
        rest = {name: value for name, value in detail.items() if name not in ("type", "id", "signature", text_name)}
        told = [detail.get(name) or "" for name in ("id", text_name, "signature")]
        blocks.append(ThinkingBlock(detail["type"], len(blocks), *told, json.dumps(rest)))
    return blocks


def _tool(tool: dict[str, Any]) -> ToolSpec:
    function = tool["function"]
    marked = "cache_control" in tool
    strict = function.get("strict") or False
    return ToolSpec(function["name"], function.get("description", ""), function["parameters"], strict, marked)


def _choice(body: dict[str, Any]) -> ToolChoice | None:
    single = body.get("parallel_tool_calls") is False
    match body.get("tool_choice"):
        case None:
            return ToolChoice(single=True) if single else None
        case {"function": {"name": name}}:
            return ToolChoice(tool=name, single=single)
        case word:
            return ToolChoice("required" if word == "any" else word, single=single)


def _form(form: dict[str, Any] | None) -> ResponseFormat | None:
    if form is None or form["type"] == "json_object":
        return None if form is None else ResponseFormat()
    schema = form["json_schema"]
    return ResponseFormat(schema["schema"], schema.get("name", "answer"), schema.get("strict") or False)


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """A request without the differences that mean nothing, each of which stands in a function below."""
    # Ours are always streamed; servers of one model need no name; what is empty is as good as absent.
    kept = {n: value for n, value in body.items() if n not in ("stream", "stream_options") and value not in ("", [])}
    kept["messages"] = [_normal_message(message) for message in body["messages"]]
    if "tools" in kept:
        kept["tools"] = [_normal_tool(tool) for tool in body["tools"]]
    if body.get("tool_choice") == "any":
        kept["tool_choice"] = "required"  # Mistral's older word
    if "response_format" in body and "json_schema" in body["response_format"]:
        named = {"name": "answer"} | body["response_format"]["json_schema"]
        kept["response_format"] = {"type": "json_schema", "json_schema": named}
    return kept


def _normal_message(message: dict[str, Any]) -> dict[str, Any]:
    # What is empty is as good as absent; `reasoning_details` say what `reasoning` says.
    kept = {name: value for name, value in message.items() if value not in (None, "", [], False)}
    if "reasoning_details" in kept:
        kept.pop("reasoning", None)
    # OpenAI's newer word for the system.
    kept["role"] = "system" if kept["role"] == "developer" else kept["role"]
    content = kept.get("content")
    # A mark of a message is one behind its last part; a text alone is as good as a list of it.
    if mark := kept.pop("cache_control", None):
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kept["content"] = [*parts[:-1], {**parts[-1], "cache_control": mark}]
    elif isinstance(content, list):
        is_text = len(content) == 1 and content[0].keys() == {"type", "text"}
        kept["content"] = content[0]["text"] if is_text else [_normal_part(part) for part in content]
    return kept


def _normal_part(part: dict[str, Any]) -> dict[str, Any]:
    # A thought in pieces is as good as a joined one.
    return part | {"thinking": "".join(piece["text"] for piece in part["thinking"])} if "thinking" in part else part


def _normal_tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {name: value for name, value in tool["function"].items() if value not in (False, "")}
    return {"type": "function", **tool, "function": function}
