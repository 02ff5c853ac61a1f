"""Ollama's own API, the only one in which the length of the context window can be set.

By default Ollama truncates a conversation that is longer than the window. It is asked to refuse instead, which releases
since October 2025 do. Truncation cannot be detected by the token count, since a truncated prompt may have any length.
Source: research/wire 2.1, 2.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar, Final

from turnwright_values.replies import ThinkingBlock

from turnwright_core.chat.deltas import Delta
from turnwright_core.chat.message import Message, Role
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.model_call import ModelCall, ToolSpec
from turnwright_provider.domain.tool_calls import text_of
from turnwright_provider.domain.wires.blocks import images_of, inline_image, object_in
from turnwright_provider.domain.wires.json_fold import JsonFold, objects, reply_in
from turnwright_provider.domain.wires.prepare_messages import TOOL, tool_names
from turnwright_provider.domain.wires.wire import Framing, Wire

# Fold from the lines of Ollama's own API to deltas: a JSON object each, the last one `done`.
#
# Calls are complete, with objects as arguments. Their indexes are ignored: some releases use 0 for each call.
# Source: research/wire 2.1.

_COUNTS: Final = ("prompt_eval_count", "eval_count")


class OllamaFold(JsonFold):
    """Folds one reply."""

    def chunk(self, chunk: JsonMapping) -> list[Delta]:
        self._set_vendor_model(chunk.get("model"))
        message = chunk.get("message")
        deltas = self._message(message) if isinstance(message, dict) else []
        deltas += self._add_usage({name: chunk[name] for name in _COUNTS if name in chunk})
        self._set_finish_reason(chunk.get("done_reason"))
        if chunk.get("done") is True:
            # Old releases give no reason.
            self._set_finish_reason(self._reason or "stop")
            self.is_done = True
        return deltas

    def whole(self, body: object) -> list[Delta]:
        return self.take(reply_in(body, "message", dict, "a chat of Ollama's"))

    def _message(self, message: JsonMapping) -> list[Delta]:
        deltas = [
            *self._add_reasoning(text_of(message.get("thinking"))),
            *self._add_text(text_of(message.get("content"))),
        ]
        if tools := self._tools.feed([{**call, "index": None} for call in objects(message.get("tool_calls"))]):
            deltas.append(tools)
        return deltas


_ROLES: Final = {role: role.value for role in Role}

_ONLY_ADDRESSES: Final = (
    "Ollama fetches no images, and a message of this call has nothing but images at addresses: "
    "send the images themselves, as bytes or data: URLs."
)


class OllamaWire(Wire):
    """The wire of Ollama."""

    name = "ollama"
    vendor = "Ollama"
    path = "/api/chat"
    takes_server_blocks = False
    not_taken: ClassVar = {
        "metadata": "Ollama has no place for it.",
        "cache": "Ollama takes no marks: it caches by itself.",
    }
    framing = Framing.LINES
    models_path = "/api/tags"
    usual_path = ""
    names_in_errors: ClassVar = {"reasoning": ("think",), "response_format": ("format",)}

    def fold(self) -> OllamaFold:
        return OllamaFold(self._think_tags)

    def _body(
        self, call: ModelCall, messages: Sequence[Message], without: AbstractSet[str], dropped: dict[str, str]
    ) -> JsonObject:
        # That a model must not call is said by giving it no tools.
        if (choice := call.tool_choice) and (choice.tool or choice.single or choice.mode == "required"):
            dropped["tool_choice"] = "Ollama leaves it to the model what to call."
        names = tool_names(messages)
        body: JsonObject = {
            "model": call.model,
            "messages": [_message(message, call, names) for message in messages],
            "stream": True,
            "truncate": False,
            "shift": False,
            "options": _options(call),
        }
        if call.tools and not (call.tool_choice and call.tool_choice.mode == "none"):
            body["tools"] = self._tools(call, "", _tool)
        return body | self._sent(call, without)

    def _takes(self, block: ThinkingBlock) -> bool:
        del block
        return False

    def _left_out(self, messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
        for name, why in super()._left_out(messages):
            if name != "images":
                yield name, why
        if any(inline_image(image) is None for message in messages for image in images_of(message)):
            yield "images", "Ollama fetches none: it takes the image itself."
        if any(one.signature for message in messages for one in message.calls):
            yield "signatures", "Ollama has no place for it."

    def _optional(self, call: ModelCall) -> dict[str, JsonMapping]:
        amount, form = self._reasoning(call), call.response_format
        return {
            "reasoning": {} if amount is None else {"think": False if amount.word == "off" else amount.word},
            "response_format": {} if form is None else {"format": "json" if form.schema is None else form.schema},
        }


def _options(call: ModelCall) -> JsonObject:
    options = {
        "temperature": call.temperature,
        "num_predict": call.output_tokens_max,
        "stop": list(call.stop) or None,
        "num_ctx": call.info.context_length or None,
    }
    return {name: value for name, value in options.items() if value is not None}


def _message(message: Message, call: ModelCall, names: Mapping[str, str]) -> JsonObject:
    sent: JsonObject = {"role": _ROLES[message.role], "content": message.text}
    shown = images_of(message)
    if images := [found[1] for image in shown if (found := inline_image(image))]:
        sent["images"] = images
    elif shown and not message.text:
        raise failed(FailureClass.INVALID, _ONLY_ADDRESSES)
    if message.role is TOOL:
        sent |= {"tool_name": message.tool or names.get(message.call_id, ""), "tool_call_id": message.call_id}
    if message.reasoning and message.vendor_model == call.vendor_model:
        sent["thinking"] = message.reasoning
    if message.calls:
        sent["tool_calls"] = [
            {"id": one.id, "function": {"index": n, "name": one.name, "arguments": object_in(one.arguments)}}
            for n, one in enumerate(message.calls)
        ]
    return sent


def _tool(tool: ToolSpec) -> JsonObject:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}
