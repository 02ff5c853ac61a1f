"""Recorded requests of OpenAI's Responses: what call they say, and in what a request of ours may differ from them."""

import base64
import json
from itertools import groupby
from typing import Any

from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec

OURS = "v/m"

_NAMED = {
    *("model", "input", "instructions", "stream", "store", "temperature", "max_output_tokens", "tools", "tool_choice"),
    *("parallel_tool_calls", "metadata"),
}
_TOOL = {"type", "name", "description", "parameters", "strict"}
_ENCRYPTED = "reasoning.encrypted_content"


def call_of(body: dict[str, Any]) -> ModelCall:
    """The call that a recorded request makes; fields that we have no name for are its `extra`."""
    extra = {name: value for name, value in body.items() if name not in _NAMED}
    tools = body.get("tools", [])
    ours = [tool for tool in tools if tool["type"] == "function" and tool.keys() <= _TOOL]
    extra["tools"] = [tool for tool in tools if tool not in ours]
    extra["include"] = [one for one in body.get("include", ()) if one != _ENCRYPTED]
    reasoning = dict(body.get("reasoning") or {})
    effort = reasoning.pop("effort", None)
    extra["reasoning"] = reasoning
    form = extra.get("text", {}).pop("format", None)
    system = [Message(Role.SYSTEM, (Text(body["instructions"]),))] if body.get("instructions") else []
    return ModelCall(
        body["model"],
        (*system, *_messages(items_of(body))),
        body.get("temperature"),
        body.get("max_output_tokens"),
        tools=tuple(_tool(tool) for tool in ours),
        tool_choice=_choice(body),
        response_format=_form(form),
        reasoning=Reasoning(effort) if effort else None,
        metadata=body.get("metadata", {}),
        extra={name: value for name, value in extra.items() if value},
        vendor_model=OURS,
    )


def items_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    given = body["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _messages(items: list[dict[str, Any]]) -> list[Message]:
    """Items of a reply that follow each other are one message, unless it would have two texts."""
    messages: list[Message] = []
    for is_reply, run in groupby(items, _is_of_reply):
        if not is_reply:
            messages += map(_message, run)
            continue
        group: list[dict[str, Any]] = []
        for item in run:
            if "role" in item and any("role" in other for other in group):
                messages.append(_reply(group))
                group = []
            group.append(item)
        messages.append(_reply(group))
    return messages


def _is_of_reply(item: dict[str, Any]) -> bool:
    if item.get("type", "message") == "message":
        return item["role"] == "assistant"
    return item["type"] != "function_call_output"


def _message(item: dict[str, Any]) -> Message:
    if item.get("type") == "function_call_output":
        return Message(Role.TOOL, _parts(item["output"]), call_id=item["call_id"])
    return Message(Role.USER if item["role"] == "user" else Role.SYSTEM, _parts(item["content"]))


def _reply(items: list[dict[str, Any]]) -> Message:
    parts: tuple[Part, ...] = ()
    calls, thinking, blocks = [], [], []
    for place, item in enumerate(items):
        match item.get("type", "message"):
            case "message":
                parts = _parts(item["content"])
            case "function_call":
                spaced = json.dumps({"namespace": item["namespace"]}) if "namespace" in item else ""
                call = ToolCall(item["name"], item["arguments"], len(calls), item["call_id"], "", spaced, place)
                calls.append(call)
            case "reasoning":
                rest = {name: value for name, value in item.items() if name not in ("type", "id")}
                thinking.append(ThinkingBlock("reasoning", place, item.get("id", ""), data=json.dumps(rest)))
            case _:
                blocks.append(ServerBlock(place, json.dumps(item)))
    return Message(
        Role.ASSISTANT,
        parts,
        calls=tuple(calls),
        thinking=tuple(thinking),
        server_blocks=tuple(blocks),
        vendor_model=OURS,
    )


def _parts(content: Any) -> tuple[Part, ...]:
    listed = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    return tuple(map(_part, listed))


def _part(part: dict[str, Any]) -> Part:
    if part["type"] != "input_image":
        return Text(part["text"], "prompt_cache_breakpoint" in part)
    url = part["image_url"]
    if not url.startswith("data:"):
        return Image(url=url)
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return Image(kind, base64.b64decode(data))


def _tool(tool: dict[str, Any]) -> ToolSpec:
    return ToolSpec(tool["name"], tool.get("description", ""), tool.get("parameters", {}), tool.get("strict") or False)


def _choice(body: dict[str, Any]) -> ToolChoice | None:
    single = body.get("parallel_tool_calls") is False
    match body.get("tool_choice"):
        case None:
            return ToolChoice(single=True) if single else None
        case {"name": name}:
            return ToolChoice(tool=name, single=single)
        case word:
            return ToolChoice(word, single=single)


def _form(form: dict[str, Any] | None) -> ResponseFormat | None:
    if form is None or form["type"] != "json_schema":
        return None if form is None or form["type"] == "text" else ResponseFormat()
    return ResponseFormat(form["schema"], form.get("name", "answer"), form.get("strict") or False)


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """A request without the differences that mean nothing."""
    # Ours are always streamed and never stored; what is empty is as good as absent.
    kept = {n: v for n, v in body.items() if n not in ("stream", "store") and v not in (None, "", [], {})}
    kept["include"] = sorted({*body.get("include", ()), _ENCRYPTED})
    # What the system says first is the instructions, and `system` an older word for `developer`.
    items = [_normal_item(item) for item in items_of(body)]
    system = [body.get("instructions") or ""]
    while len(items) > 1 and items[0].get("role") == "developer" and "content" in items[0]:
        system.append(items.pop(0)["content"])
    kept["instructions"], kept["input"] = "\n\n".join(filter(None, system)), items
    kept["tools"] = sorted((_normal_tool(tool) for tool in body.get("tools", ())), key=json.dumps)
    # How much of its reasoning a model tells is not a part of a call: ours ask for what the vendor thinks right.
    kept["reasoning"] = {n: v for n, v in (body.get("reasoning") or {}).items() if n != "summary"}
    if kept.get("tool_choice") == "auto":
        kept.pop("tool_choice")  # as good as none
    return kept


def _normal_item(item: dict[str, Any]) -> dict[str, Any]:
    # Ids of calls and states of items say nothing in a request; a text alone is as good as a list of it.
    calls = ("id", "status") if item.get("type") == "function_call" else ()
    kept = {name: value for name, value in item.items() if name not in calls}
    if kept.get("type") == "message":
        kept.pop("type")
    if kept.get("role") == "system":
        kept["role"] = "developer"
    if isinstance(content := kept.get("content"), list) and "role" in kept:
        # Marks for caches are not ours to make here: they are named as dropped.
        parts = [{n: v for n, v in part.items() if n != "prompt_cache_breakpoint"} for part in content]
        kept["content"] = parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts
    return kept


def _normal_tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: tool[name] for name in sorted(tool) if tool[name] not in (False, "")}
