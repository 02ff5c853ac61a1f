"""Fold from the lines of Ollama's own API to deltas: a JSON object each, the last one `done`.

Calls are complete, with objects as arguments. Their indexes are ignored: some releases use 0 for each call.
Source: research/wire 2.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnwright_core.chat.deltas import Delta
from turnwright_provider.domain.tool_calls import text_of
from turnwright_provider.domain.wires.json_fold import JsonFold, objects, reply_in

_COUNTS: Final = ("prompt_eval_count", "eval_count")


class OllamaFold(JsonFold):
    """Folds one reply."""

    def chunk(self, chunk: Mapping[str, Any]) -> list[Delta]:
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

    def whole(self, body: Any) -> list[Delta]:
        return self.take(reply_in(body, "message", dict, "a chat of Ollama's"))

    def _message(self, message: Mapping[str, Any]) -> list[Delta]:
        deltas = [
            *self._add_reasoning(text_of(message.get("thinking"))),
            *self._add_text(text_of(message.get("content"))),
        ]
        if tools := self._tools.feed([{**call, "index": None} for call in objects(message.get("tool_calls"))]):
            deltas.append(tools)
        return deltas
