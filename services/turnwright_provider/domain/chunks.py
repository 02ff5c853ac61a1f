"""From the events of a chat completion stream to deltas, tolerant of every recorded vendor.

    SseEvent --event()--> deltas ... --close()--> last deltas and Finish

Usage may stand in any chunk (or in `x_groq`); reasoning under three names; content may be a list of parts; a refusal
is content; `[DONE]` may be missing. A stream that ends with neither a finish reason nor `[DONE]` was cut.
Source: architecture 8; research/wire 2.1; rows RD01, RD02, RD05, RD09.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, groupby
from typing import Any, Final

from turnwright_core.deltas import AppendContent, AppendReasoning, Delta, SetUsage
from turnwright_core.json_text import parse_json
from turnwright_core.runs import Usage
from turnwright_provider.domain.classify import classify_in_stream
from turnwright_provider.domain.error_body import brief, tells_error
from turnwright_provider.domain.failures import FailureClass, VendorError, failed
from turnwright_provider.domain.halves import Joiner, whole
from turnwright_provider.domain.model_call import Finish, VendorEvent
from turnwright_provider.domain.sse import SseEvent
from turnwright_provider.domain.think_tags import ThinkRouter, ThinkTags, called_in
from turnwright_provider.domain.tool_calls import ToolCallFold, ordinal
from turnwright_provider.domain.usage import merge_usage, read_usage

DONE: Final = "[DONE]"

WORD_CHARS_MAX: Final = 4000
"""As much of a finish reason and of a model's name is looked at."""

_REASONING: Final = ("reasoning_content", "reasoning")
_IDLE_EVENTS: Final = frozenset({"ping", "heartbeat", "keepalive"})


class ChatFold:
    """Folds one reply; `think_tags` says which `<think>` in the content is reasoning."""

    def __init__(self, think_tags: ThinkTags) -> None:
        self._router = ThinkRouter(think_tags)
        self._content = Joiner()
        self._reasoning = Joiner()
        self._tools = ToolCallFold()
        self._usage: Usage | None = None
        self._reason = ""
        self._vendor_model = ""
        self._chunks = 0
        self._told = False
        self.is_done = False
        """Whether the server said that nothing follows."""
        self._text_chars = 0

    @property
    def is_ended(self) -> bool:
        return self.is_done or bool(self._reason)

    @property
    def has_begun(self) -> bool:
        return self._chunks > 0

    @property
    def progress(self) -> int:
        """A figure that grows with the reply, and with nothing else that a server sends."""
        return self._text_chars + self._tools.chars + self.is_ended

    def event(self, event: SseEvent) -> list[Delta]:
        """The deltas of one event. Raises VendorError for an error that the server put into its stream."""
        try:
            return self._event(event)
        except RecursionError:
            raise failed(FailureClass.PROTOCOL, f"an event is nested too deeply: {event.data[:200]}") from None

    def _event(self, event: SseEvent) -> list[Delta]:
        data = event.data.strip()
        if self.is_done or not data or event.name in _IDLE_EVENTS:
            return []
        if data == DONE:
            self.is_done = True
            return []
        if event.name == "error":
            raise _error_in_stream(_parsed(data))
        return self.chunk(self._parse(data))

    def chunk(self, chunk: Any) -> list[Delta]:
        """The deltas of one chunk. Raises VendorError for an error object."""
        if not isinstance(chunk, dict):
            raise failed(FailureClass.PROTOCOL, f"a chunk is not an object: {str(chunk)[:100]}")
        if tells_error(chunk):
            raise _error_in_stream(chunk)
        self._chunks += 1
        self._vendor_model = self._vendor_model or whole(_text(chunk.get("model")))[:WORD_CHARS_MAX]
        deltas: list[Delta] = []
        for choice in _objects(chunk.get("choices")):
            # Only the first of several alternatives is the reply; nobody asks for more than one.
            if ordinal(choice.get("index")) in (0, None):
                deltas += self._choice(choice)
        deltas += self._usages(chunk)
        self._told = self._told or bool(deltas)
        return deltas

    def whole(self, body: Any) -> list[Delta]:
        """The deltas of a reply that came as one JSON body. Raises VendorError when it is none."""
        choices = _objects(body.get("choices")) if isinstance(body, dict) else []
        if isinstance(body, dict) and tells_error(body):
            raise _error_in_stream(body)
        if not any(isinstance(choice.get("message"), dict) for choice in choices):
            raise failed(FailureClass.PROTOCOL, f"the JSON body is not a chat completion: {brief(body)[:200]}")
        deltas = self.chunk(body)
        self.is_done = True
        return deltas

    def flush(self) -> list[Delta]:
        """What was held back: to be told also when the stream breaks off."""
        deltas: list[Delta] = []
        if thought := self._reasoning.end():
            deltas.append(AppendReasoning(thought))
        deltas += [*self._router.feed(self._content.end()), *self._router.end()]
        tools = self._tools.end()
        return deltas if tools is None else [*deltas, tools]

    def close(self) -> list[VendorEvent]:
        """The last deltas and the end. Raises VendorError for a stream that was empty or was cut."""
        if not self._chunks:
            raise failed(
                FailureClass.PROTOCOL,
                "the answer was 200 without a single event; some servers do this when the prompt is too long for them",
            )
        if not self.is_ended:
            raise failed(FailureClass.SERVER, "the stream ended without a finish reason")
        deltas, finish = self.flush(), Finish(self._reason, self._usage, self._vendor_model)
        if not finish.is_cut and (calls := called_in(self._router.unclosed)):
            deltas.append(AppendContent(calls))
        return [*deltas, finish]

    def _parse(self, data: str) -> Any:
        try:
            return parse_json(data)
        except ValueError:
            # After chunks in good order it is a gateway's page in the middle of the stream, which passes.
            kind = FailureClass.GATEWAY if self._chunks else FailureClass.PROTOCOL
            raise failed(kind, f"the data of an event is not JSON: {data[:200]}") from None

    def _choice(self, choice: Mapping[str, Any]) -> list[Delta]:
        deltas = self._body(choice.get("delta"))
        if not self.progress:
            # Perplexity repeats the whole so far in `message`; it counts only where no delta has said anything.
            deltas += self._body(choice.get("message"))
        self._reason = whole(_text(choice.get("finish_reason")))[:WORD_CHARS_MAX] or self._reason
        if self._reason == "error":
            raise _error_in_stream(choice)
        return deltas

    def _body(self, body: Any) -> list[Delta]:
        deltas: list[Delta] = []
        if not isinstance(body, dict):
            return deltas
        said = _reasoning(body)
        self._text_chars += len(said)
        if reasoning := self._reasoning.feed(said):
            deltas.append(AppendReasoning(reasoning))
        for part in _content(body.get("content")):
            self._text_chars += len(part.text)
            if isinstance(part, AppendContent):
                deltas += self._router.feed(self._content.feed(part.text))
            else:
                deltas.append(AppendReasoning(whole(part.text)))
        if refusal := whole(_text(body.get("refusal"))):
            self._text_chars += len(refusal)
            deltas.append(AppendContent(refusal))
        if tools := self._tools.feed(body.get("tool_calls")):
            deltas.append(tools)
        return deltas

    def _usages(self, chunk: Mapping[str, Any]) -> Iterable[SetUsage]:
        groq = chunk.get("x_groq")
        for raw in (chunk.get("usage"), groq.get("usage") if isinstance(groq, dict) else None):
            if isinstance(raw, dict) and raw:
                self._usage = merge_usage(self._usage, read_usage(raw))
                yield SetUsage(self._usage)


def _parsed(data: str) -> Any:
    try:
        return parse_json(data)
    except (ValueError, RecursionError):
        return data


def _error_in_stream(body: Any) -> VendorError:
    return VendorError(classify_in_stream(body))


def _reasoning(body: Mapping[str, Any]) -> str:
    # One of them: servers in transition send the same text under two names.
    for name in _REASONING:
        if text := _text(body.get(name)):
            return text
    details = _objects(body.get("reasoning_details"))
    return "".join(_text(detail.get("text")) or _text(detail.get("summary")) for detail in details)


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
        texts = [thinking] if isinstance(thinking, str) else [_text(t.get("text")) for t in _objects(thinking)]
        return [AppendReasoning(text) for text in texts if text]
    text = _text(part.get("text"))
    return [AppendContent(text)] if text and part.get("type", "text") in ("text", "output_text") else []


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
