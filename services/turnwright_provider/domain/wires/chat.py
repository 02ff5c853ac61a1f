"""OpenAI's chat completions, which most servers speak, and the fields that a request drops if a server refuses them.

    stream_options      unknown to older servers: left out, and there may be no usage
    max_tokens          renamed by OpenAI's reasoning models: max_completion_tokens
    all others          left out, and named in what was dropped

Each field is dropped once, and the caller remembers for which models. Tools and images are not: a reply without them
would answer another question.
Source: research/wire 2.1, 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain, groupby
from typing import Any, ClassVar, Final

from turnwright_values.replies import ThinkingBlock

from turnwright_core.chat.deltas import AppendContent, AppendReasoning, Delta
from turnwright_core.chat.message import Message
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.model_calls import REFUSED_SILENCE
from turnwright_core.models import ToolChoice
from turnwright_provider.domain.error_body import is_error_body, truncated_json
from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec
from turnwright_provider.domain.refused import SILENT
from turnwright_provider.domain.surrogates import join_surrogates
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.tool_calls import parse_index, text_of
from turnwright_provider.domain.wires.chat_messages import CACHE_MARK, ThinkingFold, chat_messages, is_known
from turnwright_provider.domain.wires.json_fold import JsonFold, error_in_stream, objects
from turnwright_provider.domain.wires.wire import Wire

# Fold from the events of a chat completion stream to deltas, tolerant of every recorded vendor.
#
#     SseEvent --event()--> deltas ... --close()--> last deltas and Finish
#
# Usage may be in any chunk (or in `x_groq`); reasoning has three names; content may be a list of parts; a refusal is
# content; `[DONE]` may be missing. A stream with neither a finish reason nor `[DONE]` is truncated.
# Source: architecture 8; research/wire 2.1; rows RD01, RD02, RD05, RD09.

_REASONING: Final = ("reasoning_content", "reasoning")


class ChatFold(JsonFold):
    """Folds one reply; `think_tags` says which `<think>` in the content is reasoning."""

    def __init__(self, think_tags: ThinkTags) -> None:
        super().__init__(think_tags)
        self._thinking = ThinkingFold()
        self._links: list[str] = []

    def chunk(self, chunk: JsonMapping) -> list[Delta]:
        self._set_vendor_model(chunk.get("model"))
        deltas = [*self._add_usage(chunk.get("usage"))]
        if isinstance(groq := chunk.get("x_groq"), dict):
            deltas += self._add_usage(groq.get("usage"))
        for choice in objects(chunk.get("choices")):
            # Only the first alternative; requests never ask for more than one.
            if parse_index(choice.get("index")) in (0, None):
                deltas += self._choice(choice)
        if "citations" in chunk or "search_results" in chunk:
            deltas += self._sources(chunk)
        return deltas

    def whole(self, body: Any) -> list[Delta]:
        choices = objects(body.get("choices")) if isinstance(body, dict) else []
        if isinstance(body, dict) and is_error_body(body):
            raise error_in_stream(body)
        if not any(isinstance(choice.get("message"), dict) for choice in choices):
            raise failed(FailureClass.PROTOCOL, f"the JSON body is not a chat completion: {truncated_json(body)[:200]}")
        deltas = self.take(body)
        self.is_done = True
        return deltas

    def flush(self) -> list[Delta]:
        deltas = super().flush()
        if blocks := self._thinking.end():
            deltas.append(blocks)
        for link in self._links:
            deltas += self._add_citation({"url": link})
        return deltas

    def _choice(self, choice: JsonMapping) -> list[Delta]:
        deltas, message = self._body(choice.get("delta"), is_whole=False), choice.get("message")
        if not self.progress:
            # Perplexity repeats the whole so far in `message`; it counts only where no delta has said anything.
            deltas += self._body(message, is_whole=True)
        self._set_finish_reason(choice.get("finish_reason"))
        if self.is_ended and not self._tools.chars and isinstance(message, dict):
            deltas += self._calls(message, is_whole=True)
        if self._reason == "error":
            raise error_in_stream(choice)
        return deltas

    def _body(self, body: Any, *, is_whole: bool) -> list[Delta]:
        deltas: list[Delta] = []
        if not isinstance(body, dict):
            return deltas
        if thought := self._reasoning_of(body):
            deltas += self._add_reasoning(thought)
        for part in _content(body.get("content")):
            if isinstance(part, AppendContent):
                deltas += self._add_text(part.text)
            else:
                self._text_chars += len(part.text)
                self._thinking.say("thinking", part.text)
                deltas.append(AppendReasoning(join_surrogates(part.text)))
        if refusal := join_surrogates(text_of(body.get("refusal"))):
            self._text_chars += len(refusal)
            deltas.append(AppendContent(refusal))
        for source in objects(body.get("annotations")):
            deltas += self._add_citation(source)
        return [*deltas, *self._calls(body, is_whole=is_whole)]

    def _calls(self, body: JsonMapping, *, is_whole: bool) -> list[Delta]:
        listed = body.get("tool_calls")
        if not listed and isinstance(only := body.get("function_call"), dict):
            # What older servers send in place of a list.
            listed = {"function": only}
        tools = self._tools.feed(listed, are_whole=is_whole)
        return [] if tools is None else [tools]

    def _reasoning_of(self, body: JsonMapping) -> str:
        details = objects(body.get("reasoning_details"))
        for detail in details:
            self._thinking.add(detail)
        if isinstance(signed := body.get("extra_content"), dict):
            self._thinking.add({"type": "extra_content", "extra_content": signed})
        # One of them: servers in transition send the same text under two names.
        for name in _REASONING:
            if text := text_of(body.get(name)):
                self._thinking.say(name, text)
                return text
        return "".join(text_of(detail.get("text")) or text_of(detail.get("summary")) for detail in details)

    def _sources(self, chunk: JsonMapping) -> Iterator[Delta]:
        """Sources of the whole reply, repeated in every chunk: Perplexity's and xAI's objects, else addresses."""
        for source in objects(chunk.get("search_results")):
            yield from self._add_citation(source)
        links = chunk.get("citations")
        if isinstance(links, list) and not chunk.get("search_results"):
            self._links = [join_surrogates(link) for link in links if isinstance(link, str)]


def _content(content: Any) -> list[AppendContent | AppendReasoning]:
    if isinstance(content, str):
        return [AppendContent(content)] if content else []
    parts = chain.from_iterable(map(_part, content if isinstance(content, list) else ()))
    return [kind("".join(part.text for part in run)) for kind, run in groupby(parts, type)]


def _part(part: Any) -> list[AppendContent | AppendReasoning]:
    if isinstance(part, str):
        part = {"type": "text", "text": part}
    if not isinstance(part, dict):
        return []
    if part.get("type") == "thinking":
        thinking = part.get("thinking")
        texts = [thinking] if isinstance(thinking, str) else [text_of(t.get("text")) for t in objects(thinking)]
        return [AppendReasoning(text) for text in texts if text]
    text = text_of(part.get("text"))
    return [AppendContent(text)] if text and part.get("type", "text") in ("text", "output_text") else []


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
    ) -> JsonObject:
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
        body: JsonObject = {"model": call.model, "messages": sent, "stream": True}
        if call.tools:
            body["tools"] = self._tools(call, marks, partial(_tool, marks=marks))
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

    def _optional(self, call: ModelCall) -> dict[str, JsonMapping]:
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


def _tool(tool: ToolSpec, *, marks: bool) -> JsonObject:
    function: JsonObject = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function, **(CACHE_MARK if marks and tool.cache else {})}


def _choice(choice: ToolChoice) -> JsonObject:
    named = {"type": "function", "function": {"name": choice.tool}}
    single = {"parallel_tool_calls": False} if choice.single else {}
    return {"tool_choice": named if choice.tool else choice.mode, **single}


def _form(form: ResponseFormat) -> JsonObject:
    if form.schema is None:
        return {"type": "json_object"}
    schema = {"name": form.name, "schema": form.schema, **({"strict": True} if form.strict else {})}
    return {"type": "json_schema", "json_schema": schema}
