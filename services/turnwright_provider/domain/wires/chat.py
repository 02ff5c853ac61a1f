"""OpenAI's chat completions, which most servers speak, and the fields that a request drops if a server refuses them.

    stream_options      unknown to older servers: left out, and there may be no usage
    max_tokens          renamed by OpenAI's reasoning models: max_completion_tokens
    all others          left out, and named in what was dropped

Each field is dropped once, and the caller remembers for which models. Tools and images are not: a reply without them
would answer another question.
Source: research/wire 2.1, 2.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar

from turnwright_core.chat.message import Message, ThinkingBlock
from turnwright_core.model_calls import REFUSED_SILENCE
from turnwright_core.models import ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec
from turnwright_provider.domain.refused import SILENT
from turnwright_provider.domain.wires.chat_messages import CACHE_MARK, chat_messages
from turnwright_provider.domain.wires.chat_reply import ChatFold
from turnwright_provider.domain.wires.chat_thinking import is_known
from turnwright_provider.domain.wires.wire import Wire


class ChatWire(Wire):
    """The wire of chat completions."""

    name = "chat"
    vendor = "The service"
    path = "/chat/completions"
    takes_server_blocks = False
    names_in_errors: ClassVar = {
        "stream_options": ("stream_options", "include_usage"),
        "temperature": ("temperature",),
        "max_tokens": ("max_completion_tokens",),
        "stop": ("'stop'", "`stop`", '"stop"', ": stop", "stop sequence", "stop param"),
        "response_format": ("response_format", "response format", "json_schema"),
        "tool_choice": ("tool_choice", "tool choice", "parallel_tool_calls", "parallel tool"),
        "metadata": ("metadata",),
        "cache": ("cache_control",),
        "reasoning": ("reasoning", "thinking", "prompt_mode", "chat_template_kwargs"),
    }

    def fold(self) -> ChatFold:
        return ChatFold(self._think_tags)

    def _body(
        self, call: ModelCall, messages: Sequence[Message], without: AbstractSet[str], dropped: dict[str, str]
    ) -> dict[str, Any]:
        is_marked = "cache" in call.asked
        if is_marked and not self._marks:
            dropped["cache"] = "The service takes no marks: it caches by itself, if at all."
        if call.reasoning and not self._asking(call.reasoning):
            dropped["reasoning"] = f"The service has no words for `{call.reasoning.word}`."
        marks = is_marked and self._marks and "cache" not in without
        sent = chat_messages(messages, marks=marks)
        if REFUSED_SILENCE in call.refused:
            # An empty text counts as none.
            sent = [{SILENT: " ", **one} if one["role"] == "assistant" else one for one in sent]
        body: dict[str, Any] = {"model": call.model, "messages": sent, "stream": True}
        if call.tools:
            body["tools"] = [_tool(tool, marks=marks) for tool in call.tools]
        if call.output_tokens_max is not None:
            body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = call.output_tokens_max
        return body | self._sent(call, without)

    def _takes(self, block: ThinkingBlock) -> bool:
        return is_known(block)

    def droppable_fields(self, call: ModelCall) -> set[str]:
        sent = super().droppable_fields(call)
        sent |= {"max_tokens"} if call.output_tokens_max else set()
        sent |= {"cache"} if self._marks and "cache" in call.asked else set()
        return sent

    def _optional(self, call: ModelCall) -> dict[str, Mapping[str, Any]]:
        has_tools = call.tools or "tools" in call.extra
        amount = self._reasoning(call)
        return {
            "stream_options": {"stream_options": {"include_usage": True}},
            "temperature": {} if call.temperature is None else {"temperature": call.temperature},
            "stop": {"stop": list(call.stop)} if call.stop else {},
            "response_format": {} if call.response_format is None else {"response_format": _form(call.response_format)},
            "tool_choice": _choice(call.tool_choice) if call.tool_choice and has_tools else {},
            "metadata": {"metadata": dict(call.metadata)} if call.metadata else {},
            "reasoning": {} if amount is None else self._asking(amount),
        }


def _tool(tool: ToolSpec, *, marks: bool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function, **(CACHE_MARK if marks and tool.cache else {})}


def _choice(choice: ToolChoice) -> dict[str, Any]:
    named = {"type": "function", "function": {"name": choice.tool}}
    single = {"parallel_tool_calls": False} if choice.single else {}
    return {"tool_choice": named if choice.tool else choice.mode, **single}


def _form(form: ResponseFormat) -> dict[str, Any]:
    if form.schema is None:
        return {"type": "json_object"}
    schema = {"name": form.name, "schema": form.schema, **({"strict": True} if form.strict else {})}
    return {"type": "json_schema", "json_schema": schema}
