"""OpenAI's Responses API: a call as a list of items, none of which the vendor stores.

    include         encrypted reasoning, which models without any refuse: left out
    summary         of the reasoning, which OpenAI gives to verified organizations only: left out
    all others      left out, and named in what was dropped

Each field is dropped once, and the caller remembers for which models.
Source: research/wire 2.1, 2.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar

from turnwright_core.chat.message import Message, ThinkingBlock
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec
from turnwright_provider.domain.wires.blocks import TEXT
from turnwright_provider.domain.wires.responses_items import REASONING, input_items
from turnwright_provider.domain.wires.responses_reply import ResponsesFold
from turnwright_provider.domain.wires.wire import Wire


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
    ) -> dict[str, Any]:
        del dropped
        instructions, items = input_items(messages)
        body: dict[str, Any] = {"model": call.model, "input": items, "stream": True, "store": False}
        if instructions:
            body["instructions"] = instructions
        if call.tools:
            body["tools"] = [_tool(tool) for tool in call.tools]
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

    def _optional(self, call: ModelCall) -> dict[str, Mapping[str, Any]]:
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


def _tool(tool: ToolSpec) -> dict[str, Any]:
    # The default is strict.
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    return {"type": "function", **function}


def _choice(choice: ToolChoice) -> dict[str, Any]:
    single = {"parallel_tool_calls": False} if choice.single else {}
    return {"tool_choice": {"type": "function", "name": choice.tool} if choice.tool else choice.mode, **single}


def _form(form: ResponseFormat) -> dict[str, Any]:
    if form.schema is None:
        return {"type": "json_object"}
    return {"type": "json_schema", "name": form.name, "schema": form.schema, "strict": form.strict}
