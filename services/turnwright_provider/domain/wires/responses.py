"""OpenAI's Responses API: a call as a list of items, none of which the vendor stores.

    include         encrypted reasoning, which models without any refuse: left out
    summary         of the reasoning, which OpenAI gives to verified organizations only: left out
    all others      left out, and named in what was dropped

Each field is dropped once, and the caller remembers for which models.
Source: research/wire 2.1, 2.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import takewhile
from typing import ClassVar, Final

from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall

from turnwright_core.chat.message import Message, Part, Text
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec
from turnwright_provider.domain.wires.blocks import TEXT, ReplyBlock, object_in, ordered_blocks
from turnwright_provider.domain.wires.chat_messages import content_of, image_url
from turnwright_provider.domain.wires.prepare_messages import ASSISTANT, SYSTEM, TOOL, USER
from turnwright_provider.domain.wires.responses_reply import ResponsesFold
from turnwright_provider.domain.wires.wire import Wire

# The messages of a call as input items of OpenAI's Responses.
#
# Leading system messages are the instructions. A reply becomes a list of items in their original order; reasoning and
# results of the vendor's tools are sent back unchanged.
# Source: research/wire 2.1; RD08.

REASONING: Final = "reasoning"


def input_items(messages: Sequence[Message]) -> tuple[str, list[JsonObject]]:
    leading = list(takewhile(lambda message: message.role is SYSTEM, messages))
    if len(leading) == len(messages):
        leading = []
    items = [item for message in messages[len(leading) :] for item in _items(message)]
    return "\n\n".join(message.text for message in leading), items


def _items(message: Message) -> list[JsonObject]:
    role = message.role
    if role is ASSISTANT:
        items = [item for block in ordered_blocks(message) if (item := _item(block))]
        # Reasoning that nothing follows is refused, such as that of a reply that was cut off.
        while items and items[-1].get("type") == REASONING:
            items.pop()
        return items
    if role is USER:
        return [{"role": "user", "content": content_of(message.parts, _part)}]
    if role is TOOL:
        return [
            {"type": "function_call_output", "call_id": message.call_id, "output": content_of(message.parts, _part)}
        ]
    return [{"role": "developer", "content": message.text}]


def _item(block: ReplyBlock) -> JsonObject:
    if isinstance(block, Text):
        return _output_text(block.text)
    match block:
        case ThinkingBlock(type=kind, text=text) if kind == TEXT:
            return _output_text(text)
        case ThinkingBlock(type=kind, id=name, data=data):
            named = {"id": name} if name else {}
            return {"type": REASONING, "summary": [], **named, **object_in(data)} if kind == REASONING else {}
        case ServerBlock(json=text):
            return object_in(text)
        case ToolCall():
            return _call(block)
        case _:
            return {}


def _output_text(text: str) -> JsonObject:
    # OpenAI does without the type of a message; llama.cpp knows a reply by it.
    return {"type": "message", "role": "assistant", "content": text} if text else {}


def _call(call: ToolCall) -> JsonObject:
    rest = object_in(call.signature)
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        **rest,
    }


def _part(part: Part) -> JsonObject:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "image_url": image_url(part)}


class ResponsesWire(Wire):
    """The wire of OpenAI's Responses."""

    name = "responses"
    vendor = "The service"
    path = "/responses"
    count_path = "/responses/input_tokens"
    counted = (
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning",
        "text",
    )
    not_taken: ClassVar = {
        "stop": "Responses have no texts at which they end.",
        "cache": "The service takes no marks: it caches by itself.",
    }
    names_in_errors: ClassVar = {
        "include": ("encrypted content", "encrypted_content", "include"),
        "summary": ("reasoning.summary", "reasoning summar"),
        "temperature": ("temperature",),
        "response_format": ("text.format", "json_schema", "response format"),
        "tool_choice": ("tool_choice", "tool choice", "parallel_tool_calls", "parallel tool"),
        "metadata": ("metadata",),
        "reasoning": ("reasoning",),
    }

    def fold(self) -> ResponsesFold:
        return ResponsesFold()

    def _body(
        self, call: ModelCall, messages: Sequence[Message], without: AbstractSet[str], dropped: dict[str, str]
    ) -> JsonObject:
        del dropped
        instructions, items = input_items(messages)
        body: JsonObject = {"model": call.model, "input": items, "stream": True, "store": False}
        if instructions:
            body["instructions"] = instructions
        if call.tools:
            body["tools"] = self._tools(call, "", _tool)
        if call.output_tokens_max is not None:
            body["max_output_tokens"] = call.output_tokens_max
        body |= self._sent(call, without)
        if "summary" in without and "reasoning" in body:
            body["reasoning"] = {name: value for name, value in body["reasoning"].items() if name != "summary"}
        return body

    def _takes(self, block: ThinkingBlock) -> bool:
        return block.type in (REASONING, TEXT)

    def droppable_fields(self, call: ModelCall) -> set[str]:
        sent = super().droppable_fields(call)
        return sent | {"summary"} if "reasoning" in sent else sent

    def _optional(self, call: ModelCall) -> dict[str, JsonMapping]:
        has_tools = call.tools or "tools" in call.extra
        amount, form = self._reasoning(call), call.response_format
        return {
            "include": {"include": ["reasoning.encrypted_content"]},
            "temperature": {} if call.temperature is None else {"temperature": call.temperature},
            "response_format": {} if form is None else {"text": {"format": _form(form)}},
            "tool_choice": _choice(call.tool_choice) if call.tool_choice and has_tools else {},
            "metadata": {"metadata": dict(call.metadata)} if call.metadata else {},
            "reasoning": {} if amount is None else {"reasoning": _effort(amount)},
        }


def _effort(amount: Reasoning) -> dict[str, str]:
    return {"effort": "none"} if amount.word == "off" else {"effort": amount.word, "summary": "auto"}


def _tool(tool: ToolSpec) -> JsonObject:
    # The default is strict.
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    return {"type": "function", **function}


def _choice(choice: ToolChoice) -> JsonObject:
    single = {"parallel_tool_calls": False} if choice.single else {}
    return {"tool_choice": {"type": "function", "name": choice.tool} if choice.tool else choice.mode, **single}


def _form(form: ResponseFormat) -> JsonObject:
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "name": form.name, "schema": form.schema, "strict": form.strict}
