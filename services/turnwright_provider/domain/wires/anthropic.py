"""Anthropic's Messages API, and the fields that a request drops if a model refuses them.

    temperature       refused by the newest models: left out
    budget_tokens     refused by models with adaptive thinking: replaced by an effort
    reasoning         models that cannot think, or always do: left out
    response_format   models without structured outputs, schemas that these cannot hold: left out
    strict            the same for the arguments of tools
    max_tokens        above the model's limit: the lowest limit of all models

`max_tokens` is required, and thinking counts in it. While a model thinks, it takes neither a temperature nor a forced
call, and the turn of a tool loop must have begun with thinking.
Source: research/wire 2.1, 2.2; row RD08.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import ClassVar, Final

from msgspec.structs import replace
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from turnwright_core.chat.message import Image, Message, Part, Text
from turnwright_core.chat.reply import with_text
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ToolSpec
from turnwright_provider.domain.wires.anthropic_reply import AnthropicFold
from turnwright_provider.domain.wires.blocks import TEXT, inline_image, object_in, ordered_blocks, piece_of
from turnwright_provider.domain.wires.chat_messages import CACHE_MARK
from turnwright_provider.domain.wires.prepare_messages import ASSISTANT, SYSTEM, TOOL, is_own
from turnwright_provider.domain.wires.wire import Wire, with_extra

# A conversation as Anthropic's turns: two roles, lists of blocks, tools answered in the user's next turn.

Wired = JsonObject
"""A block on the wire."""

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")

THOUGHTS: Final = ("thinking", "redacted_thinking")
"""Types of blocks of reasoning."""


def conversation(messages: Sequence[Message], vendor_model: str) -> tuple[list[Wired], list[Wired]]:
    """The blocks of the system prompt, and the turns, for this model."""
    own_ids = {one.id for message in messages if is_own(message, vendor_model) for one in message.calls}
    system: list[Wired] = []
    turns: list[Wired] = []
    for message in messages:
        if message.role is SYSTEM:
            system += _shown(part for part in message.parts if isinstance(part, Text))
        elif message.role is ASSISTANT:
            _add(turns, "assistant", _reply(message, own_ids))
        else:
            _add(turns, "user", [_result(message, own_ids)] if message.role is TOOL else _shown(message.parts))
    for turn in turns:
        if turn["role"] == "user" and len(turn["content"]) > 1:
            # Results must come before other content of a user message.
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    return system, turns


def _add(turns: list[Wired], role: str, blocks: list[Wired]) -> None:
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    elif blocks:
        turns.append({"role": role, "content": blocks})


def _shown(parts: Iterable[Part]) -> list[Wired]:
    """Empty texts are refused, so they are left out."""
    return [
        _image(part) if isinstance(part, Image) else _text(part)
        for part in parts
        if isinstance(part, Image) or part.text.strip()
    ]


def _text(part: Text) -> Wired:
    block: Wired = {"type": "text", "text": part.text}
    return block | CACHE_MARK if part.cache else block


def _image(image: Image) -> Wired:
    source: Wired = {"type": "url", "url": image.url}
    if found := inline_image(image):
        source = {"type": "base64", "media_type": found[0], "data": found[1]}
    return {"type": "image", "source": source, **(CACHE_MARK if image.cache else {})}


def _result(message: Message, own_ids: Container[str]) -> Wired:
    """The result of a call. A cache mark inside would be refused, so it is on the whole block."""
    content = _shown(message.parts)
    is_marked = any(part.cache for part in message.parts)
    if is_marked:
        content = [{key: value for key, value in block.items() if key not in CACHE_MARK} for block in content]
    return {
        "type": "tool_result",
        "tool_use_id": _id(message.call_id, own_ids),
        **({"content": content} if content else {}),
        **({"is_error": True} if message.failed else {}),
        **(CACHE_MARK if is_marked else {}),
    }


def _reply(message: Message, own_ids: Container[str]) -> list[Wired]:
    blocks: list[Wired] = []
    cited = deque(map(_cited, message.citations))
    for item in ordered_blocks(_with_thoughts(message)):
        match item:
            case Text() | ThinkingBlock(type="text"):
                blocks += _text_block(item, cited)
            case ThinkingBlock(type="thinking") if item.signature:
                blocks.append({"type": "thinking", "thinking": item.text, "signature": item.signature})
            case ThinkingBlock(type="redacted_thinking"):
                blocks.append({"type": "redacted_thinking", "data": item.data})
            case ServerBlock():
                blocks += [block] if (block := object_in(item.json)) else []
            case ToolCall():
                blocks.append(_call(item, own_ids))
    return blocks


def _with_thoughts(message: Message) -> Message:
    if not message.thinking:
        return message
    return replace(message, thinking=with_text(message.thinking, message.reasoning))


def _text_block(text: Text | ThinkingBlock, cited: deque[Wired]) -> list[Wired]:
    """A text with its sources: the next ones that are left, or all of them if it is the only text."""
    count = piece_of(text)[2] if isinstance(text, ThinkingBlock) else len(cited)
    taken = [source for _ in range(min(count, len(cited))) if (source := cited.popleft())]
    if not text.text.strip():
        return []
    block = _text(text) if isinstance(text, Text) else {"type": "text", "text": text.text}
    return [block | ({"citations": taken} if taken else {})]


def _cited(source: str) -> Wired:
    """A source in the form of requests, in which the name of its file is not accepted."""
    return {key: value for key, value in object_in(source).items() if key != "file_id"}


def _call(call: ToolCall, own_ids: Container[str]) -> Wired:
    caller = object_in(call.signature)
    return {
        "type": "tool_use",
        "id": _id(call.id, own_ids),
        "name": _name(call.name),
        "input": object_in(call.arguments),
        **({"caller": caller} if caller else {}),
    }


def _id(text: str, own_ids: Container[str]) -> str:
    """The id of a call; a proxy's own may have other characters."""
    return text if text in own_ids else _name(text)


def _name(text: str) -> str:
    """A name or id of another vendor, in the characters that Anthropic accepts."""
    return text if text.isalnum() and text.isascii() else _ODD.sub("_", text)


VERSION: Final = "2023-06-01"

OUTPUT_TOKENS: Final = 8192
"""Default output limit, without thinking."""

OUTPUT_TOKENS_LEAST: Final = 4096
"""As much as every model can write."""

BUDGET_TOKENS_MIN: Final = 1024
"""The minimum thinking budget."""

TEMPERATURE_MAX: Final = 1.0

_MODES: Final = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicWire(Wire):
    """The wire of Anthropic's Messages."""

    name = "anthropic"
    vendor = "Anthropic"
    path = "/messages"
    count_path = "/messages/count_tokens"
    counted = ("model", "messages", "system", "tools", "tool_choice", "thinking")
    models_path = "/models?limit=1000"
    names_in_errors: ClassVar = {
        "max_tokens": ("maximum allowed number of output tokens",),
        "strict": ("strict", "tools."),
        "temperature": ("temperature",),
        "budget_tokens": ("thinking.type.enabled", "budget_tokens"),
        "reasoning": ("thinking", "effort"),
        "response_format": (
            "output_config",
            "output_format",
            "structured output",
            "json_schema",
            "additionalproperties",
        ),
    }

    def headers(self, api_key: str) -> Mapping[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": api_key} if api_key else {})}

    def fold(self) -> AnthropicFold:
        return AnthropicFold()

    def _takes(self, block: ThinkingBlock) -> bool:
        return block.type in (TEXT, *THOUGHTS)

    def _body(
        self, call: ModelCall, messages: Sequence[Message], without: AbstractSet[str], dropped: dict[str, str]
    ) -> JsonObject:
        system, turns = conversation(messages, call.vendor_model)
        thinking = self._thinking(call, turns, without, dropped)
        body: JsonObject = {
            "model": call.model,
            "max_tokens": _max_tokens(call, thinking, without),
            "messages": turns,
            "stream": True,
            **({"system": system} if system else {}),
            **({"stop_sequences": stops} if (stops := _stops(call, dropped)) else {}),
            **self._offered(call, without),
            **_temperature(call, thinking, without, dropped),
            **_metadata(call, dropped),
        }
        return with_extra(with_extra(body, thinking), _format(call, without, dropped))

    def droppable_fields(self, call: ModelCall) -> set[str]:
        thinks = self._reasoning(call) is not None
        sent = {
            "max_tokens": call.output_tokens_max is None,
            "strict": any(tool.strict for tool in call.tools),
            "temperature": call.temperature is not None,
            "budget_tokens": thinks,
            "reasoning": thinks,
            "response_format": call.response_format is not None,
        }
        return {name for name, is_sent in sent.items() if is_sent}

    def _offered(self, call: ModelCall, without: AbstractSet[str]) -> JsonObject:
        takes_strict = "strict" not in without
        encoded = partial(_tool, takes_strict=takes_strict)
        tools = {"tools": self._tools(call, takes_strict, encoded)} if call.tools else {}
        is_open_to_choice = bool(tools) or "tools" in call.extra
        if call.tool_choice is None or not is_open_to_choice:
            return tools
        return {**tools, "tool_choice": _choice(call.tool_choice)}

    def _thinking(
        self, call: ModelCall, turns: list[Wired], without: AbstractSet[str], dropped: dict[str, str]
    ) -> JsonObject:
        reasoning = self._reasoning(call)
        if reasoning is None or "reasoning" in without:
            return {}
        if not reasoning.budget_tokens:
            return {"thinking": {"type": "disabled"}}
        budget = None if "budget_tokens" in without else _budget(call, reasoning)
        why_not = _why_no_thinking(call, turns, budget)
        if why_not:
            dropped |= {"reasoning": why_not} if call.reasoning is not None else {}
            return {}
        if budget is None:
            effort = {"output_config": {"effort": reasoning.word}}
            return {"thinking": {"type": "adaptive", "display": "summarized"}, **effort}
        return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _budget(call: ModelCall, reasoning: Reasoning) -> int:
    """The thinking budget in tokens: at most half of the output limit, if it would leave nothing for the answer."""
    budget = max(reasoning.budget_tokens, BUDGET_TOKENS_MIN)
    limit = call.output_tokens_max
    return budget if limit is None or budget < limit else max(BUDGET_TOKENS_MIN, limit // 2)


def _why_no_thinking(call: ModelCall, turns: list[Wired], budget: int | None) -> str:
    """Why the model cannot think in this call; empty if it can. Without a budget the model decides by itself."""
    if call.tool_choice and (call.tool_choice.tool or call.tool_choice.mode == "required"):
        return "Anthropic's models cannot be made to call a tool while they think."
    if budget is None:
        return ""
    if call.output_tokens_max is not None and call.output_tokens_max <= budget:
        return f"Anthropic's models think {BUDGET_TOKENS_MIN} tokens at least, and output_tokens_max is not above that."
    if len(turns) > 1 and turns[-1]["content"][0].get("type") == "tool_result":
        first = turns[-2]["content"][0].get("type")
        if first not in THOUGHTS:
            return "The reply whose calls are being answered began without thinking, and must end so."
    return ""


def _max_tokens(call: ModelCall, thinking: JsonMapping, without: AbstractSet[str]) -> int:
    if call.output_tokens_max is not None:
        return call.output_tokens_max
    budget: int = thinking.get("thinking", {}).get("budget_tokens", 0)
    if "max_tokens" in without:
        return budget + OUTPUT_TOKENS_LEAST
    limit = call.info.output_tokens_max
    if not limit:
        return budget + OUTPUT_TOKENS
    # Older models refuse a limit that does not fit into the window with the prompt.
    room = max(OUTPUT_TOKENS, call.info.context_length // 10)
    return min(budget + room, max(limit, budget + 1))


def _temperature(
    call: ModelCall, thinking: JsonMapping, without: AbstractSet[str], dropped: dict[str, str]
) -> dict[str, float]:
    value = call.temperature
    if value is None or "temperature" in without:
        return {}
    if value > TEMPERATURE_MAX:
        dropped["temperature"] = f"Anthropic's temperature ends at {TEMPERATURE_MAX:g}."
        return {}
    if value != TEMPERATURE_MAX and thinking.get("thinking", {}).get("type") in ("enabled", "adaptive"):
        dropped["temperature"] = "Anthropic's models take none while they think."
        return {}
    return {"temperature": value}


def _stops(call: ModelCall, dropped: dict[str, str]) -> list[str]:
    stops = [text for text in call.stop if text.strip()]
    if len(stops) < len(call.stop):
        dropped["stop"] = "Anthropic takes no stop that is nothing but space."
    return stops


def _tool(tool: ToolSpec, *, takes_strict: bool) -> Wired:
    return {
        "name": tool.name,
        **({"description": tool.description} if tool.description else {}),
        "input_schema": {"type": "object", **tool.parameters},
        **({"strict": True} if tool.strict and takes_strict else {}),
        **(CACHE_MARK if tool.cache else {}),
    }


def _choice(choice: ToolChoice) -> JsonObject:
    if choice.tool:
        wired: JsonObject = {"type": "tool", "name": choice.tool}
    else:
        wired = {"type": _MODES[choice.mode]}
    return {**wired, "disable_parallel_tool_use": True} if choice.single and wired["type"] != "none" else wired


def _format(call: ModelCall, without: AbstractSet[str], dropped: dict[str, str]) -> JsonObject:
    form = call.response_format
    if form is None or "response_format" in without:
        return {}
    if form.schema is None:
        dropped["response_format"] = "Anthropic's models answer in JSON by a schema only."
        return {}
    return {"output_config": {"format": {"type": "json_schema", "schema": dict(form.schema)}}}


def _metadata(call: ModelCall, dropped: dict[str, str]) -> JsonObject:
    if call.metadata.keys() - {"user_id"}:
        dropped["metadata"] = "Anthropic takes user_id alone."
    return {"metadata": {"user_id": call.metadata["user_id"]}} if "user_id" in call.metadata else {}
