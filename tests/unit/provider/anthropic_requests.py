"""Recorded requests of Anthropic's Messages: what call they say, and in what a request of ours may differ from them.

written out     a text alone, or a list with that text; `is_error: false`, `stream: false`, an empty description
order           a vendor's own tools stand behind the model's
turns           two in a row of one role are one
ttl             how long a cache mark lasts has no name here
"""

import base64
import json
from itertools import groupby
from typing import Any

from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec

OURS = "anthropic/m"

_NAMED = {
    *("model", "messages", "system", "stream", "temperature", "max_tokens", "tools", "tool_choice", "stop_sequences"),
    *("thinking", "output_config", "metadata"),
}
_TOOL_FIELDS = {"name", "description", "input_schema", "strict", "cache_control"}
_MODES: dict[str, Any] = {"auto": "auto", "none": "none", "any": "required"}
_SHOWN = {"text", "image", "tool_result"}


def has_a_place(body: dict[str, Any]) -> bool:
    """Whether messages have a part for all that its users say: none for documents, files and references."""
    for turn in body["messages"]:
        for block in _list(turn["content"]):
            inner = _list(block.get("content")) if block["type"] == "tool_result" else []
            if turn["role"] == "user" and not {block["type"], *(part["type"] for part in inner)} <= _SHOWN:
                return False
            if block["type"] == "image" and block["source"]["type"] not in ("base64", "url"):
                return False
            if block["type"] == "tool_use" and "cache_control" in block:
                return False
    return True


def call_of(body: dict[str, Any]) -> ModelCall:
    """The call that a recorded request makes; fields that we have no name for are its `extra`."""
    extra = {name: value for name, value in body.items() if name not in _NAMED}
    tools = body.get("tools") or ()
    ours = [tool for tool in tools if {"name", "input_schema"} <= tool.keys() <= _TOOL_FIELDS]
    if theirs := [tool for tool in tools if tool not in ours]:
        extra["tools"] = theirs
    config = dict(body.get("output_config") or {})
    form = config.pop("format", None)
    amount = _amount(body.get("thinking"))
    extra |= {"output_config": config} if config else {}
    extra |= {"thinking": body["thinking"]} if "thinking" in body and amount is None else {}
    system = Message(Role.SYSTEM, tuple(map(_part, _list(body.get("system")))))
    messages = [message for turn in body["messages"] for message in _messages(turn)]
    return ModelCall(
        body.get("model", ""),
        (system, *messages) if body.get("system") else tuple(messages),
        body.get("temperature"),
        body.get("max_tokens"),
        tools=tuple(_tool(tool) for tool in ours),
        tool_choice=_choice(body.get("tool_choice")),
        stop=tuple(body.get("stop_sequences") or ()),
        response_format=ResponseFormat(form["schema"]) if form else None,
        reasoning=amount,
        metadata=body.get("metadata") or {},
        extra=extra,
        vendor_model=OURS,
    )


def _amount(thinking: dict[str, Any] | None) -> Reasoning | None:
    if thinking == {"type": "disabled"}:
        return Reasoning("off")
    if thinking and thinking.keys() == {"type", "budget_tokens"}:
        return Reasoning(tokens=thinking["budget_tokens"])
    return None


def _messages(turn: dict[str, Any]) -> list[Message]:
    blocks = _list(turn["content"])
    if turn["role"] == "assistant":
        return [_reply(blocks)]
    results = [_result(block) for block in blocks if block["type"] == "tool_result"]
    said = [_part(block) for block in blocks if block["type"] != "tool_result"]
    return [*results, Message(Role.USER, tuple(said))] if said else results


def _result(block: dict[str, Any]) -> Message:
    parts = [{**part} for part in _list(block.get("content"))]
    if parts and "cache_control" in block:
        parts[-1]["cache_control"] = block["cache_control"]
    return Message(
        Role.TOOL,
        tuple(map(_part, parts)),
        call_id=block["tool_use_id"],
        failed=bool(block.get("is_error")),
    )


def _reply(blocks: list[dict[str, Any]]) -> Message:
    parts: list[Part] = []
    thinking: list[ThinkingBlock] = []
    servers: list[ServerBlock] = []
    calls: list[ToolCall] = []
    for place, block in enumerate(blocks):
        match block["type"]:
            case "text":
                parts.append(_part(block))
            case "thinking":
                told = {"text": block["thinking"], "signature": block.get("signature", "")}
                thinking.append(ThinkingBlock("thinking", place, **told))
            case "redacted_thinking":
                thinking.append(ThinkingBlock("redacted_thinking", place, data=block["data"]))
            case "tool_use":
                caller = json.dumps(block["caller"]) if "caller" in block else ""
                call = ToolCall(block["name"], json.dumps(block["input"]), len(calls), block["id"], "", caller, place)
                calls.append(call)
            case _:
                servers.append(ServerBlock(place, json.dumps(block)))
    cited = tuple(json.dumps(source) for block in blocks for source in block.get("citations") or ())
    return Message(
        Role.ASSISTANT, tuple(parts), "", tuple(calls), tuple(thinking), tuple(servers), cited, vendor_model=OURS
    )


def _part(block: dict[str, Any]) -> Part:
    cache = "cache_control" in block
    if block["type"] == "text":
        return Text(block["text"], cache=cache)
    source = block["source"]
    if source["type"] == "url":
        return Image(url=source["url"], cache=cache)
    return Image(source["media_type"], base64.b64decode(source["data"]), cache=cache)


def _tool(tool: dict[str, Any]) -> ToolSpec:
    return ToolSpec(
        tool["name"],
        tool.get("description", ""),
        tool["input_schema"],
        tool.get("strict", False),
        "cache_control" in tool,
    )


def _choice(choice: dict[str, Any] | None) -> ToolChoice | None:
    if choice is None:
        return None
    single = choice.get("disable_parallel_tool_use", False)
    if choice["type"] == "tool":
        return ToolChoice(tool=choice["name"], single=single)
    return ToolChoice(_MODES[choice["type"]], single=single)


def _list(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def normal(body: dict[str, Any]) -> dict[str, Any]:
    """A request without what may differ; see above."""
    turns = groupby(body["messages"], lambda turn: turn["role"])
    same = {
        **{name: value for name, value in body.items() if name != "system"},
        "stream": True,
        "model": body.get("model", ""),
        "messages": [(role, _normal_turn(role, [b for t in run for b in _list(t["content"])])) for role, run in turns],
        "tools": sorted(map(_normal_block, body.get("tools") or ()), key=lambda tool: str(tool.get("name"))),
        "system": [_normal_block(block) for block in _list(body.get("system"))],
        "tool_choice": _normal_block(body.get("tool_choice") or {}) if body.get("tools") else {},
    }
    return {name: value for name, value in same.items() if value not in ([], {}, None)}


def _normal_turn(role: str, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    said = [_normal_block(block) for block in blocks if block["type"] != "text" or block["text"].strip()]
    texts = [block for block in said if block["type"] == "text"]
    cited = [_normal_source(source) for block in texts for source in block.pop("citations", ())]
    if cited:
        texts[0]["citations"] = cited
    return sorted(said, key=lambda block: block["type"] != "tool_result") if role == "user" else said


def _normal_source(source: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name != "file_id"}


def _normal_block(block: dict[str, Any]) -> dict[str, Any]:
    same = dict(block)
    if "cache_control" in same:
        same["cache_control"] = {"type": "ephemeral"}
    if same.get("type") == "tool_result":
        same["content"] = [_normal_block(part) for part in _list(same.get("content"))]
        marks = [part.pop("cache_control") for part in same["content"] if "cache_control" in part]
        same |= {"cache_control": marks[0]} if marks else {}
    if "input_schema" in same:
        same["input_schema"] = {"type": "object", **same["input_schema"]}
    silent = (("is_error", False), ("description", ""), ("disable_parallel_tool_use", False), ("content", []))
    silent += (("citations", None), ("citations", []), ("strict", False))
    return {name: value for name, value in same.items() if (name, value) not in silent}
