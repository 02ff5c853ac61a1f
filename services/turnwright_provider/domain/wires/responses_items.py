"""The messages of a call as input items of OpenAI's Responses.

Leading system messages are the instructions. A reply becomes a list of items in their original order; reasoning and
results of the vendor's tools are sent back unchanged.
Source: research/wire 2.1; RD08.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from turnwright_core.chat.message import Message, Part, ServerBlock, Text, ThinkingBlock, ToolCall
from turnwright_provider.domain.wires.blocks import TEXT, ReplyBlock, object_in, ordered_blocks
from turnwright_provider.domain.wires.chat_messages import content_of, image_url
from turnwright_provider.domain.wires.prepare_messages import ASSISTANT, SYSTEM, TOOL, USER

REASONING: Final = "reasoning"


def input_items(messages: Sequence[Message]) -> tuple[str, list[dict[str, Any]]]:
    """The instructions and the input items."""
    leading = list(takewhile(lambda message: message.role is SYSTEM, messages))
    if len(leading) == len(messages):
        leading = []
    items = [item for message in messages[len(leading) :] for item in _items(message)]
    return "\n\n".join(message.text for message in leading), items


def _items(message: Message) -> list[dict[str, Any]]:
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


def _item(block: ReplyBlock) -> dict[str, Any]:
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


def _output_text(text: str) -> dict[str, Any]:
    # OpenAI does without the type of a message; llama.cpp knows a reply by it.
    return {"type": "message", "role": "assistant", "content": text} if text else {}


def _call(call: ToolCall) -> dict[str, Any]:
    rest = object_in(call.signature)
    return {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        **rest,
    }


def _part(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "image_url": image_url(part)}
