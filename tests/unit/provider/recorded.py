"""Vendor traffic, our own exchanges and the recorded ones of the shared cases (`wire`), and the fold of deltas that a client would do."""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from turnwright_values.provider import Finish
from turnwright_values.types import Usage

from cases import FOLDER, OWN, load_shared
from turnwright_core.chat import message as chat
from turnwright_core.chat.deltas import SetToolCalls, SetUsage
from turnwright_core.chat.reply import PartialReply
from turnwright_provider.domain.model_call import VendorEvent
from turnwright_provider.domain.sse import EventReader, SseReader
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat import ChatFold
from turnwright_provider.domain.wires.json_fold import JsonFold

EVENT_BYTES_MAX = 8 * 1024 * 1024


@dataclass
class Message:
    """What a client has when it has folded a reply."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, str]] = field(default_factory=list)
    usage: Usage | None = None
    finish: str | None = None
    model: str = ""
    whole: PartialReply = field(default_factory=PartialReply, compare=False)

    def add(self, event: VendorEvent) -> None:
        match event:
            case Finish(reason, usage, model):
                self.finish, self.model = reason, model
                assert usage == self.usage
                return
            case SetUsage(usage):
                self.usage = usage
            case SetToolCalls(calls):
                self.tool_calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls]
        self.whole.add(event)
        self.text, self.reasoning = self.whole.text, self.whole.thoughts

    @property
    def message(self) -> chat.Message:
        """As it is sent back, with the blocks that belong to its vendor."""
        return self.whole.message("v/m")


def chat_fold(think_tags: ThinkTags = ThinkTags.ANYWHERE) -> JsonFold:
    return ChatFold(think_tags)


def folded(chunks: Iterable[bytes], fold: JsonFold | None = None, reader: EventReader | None = None) -> Message:
    """The message of a streamed body that arrives in these chunks; of a chat completion without a fold.

    Raises VendorError.
    """
    message, reader, fold = Message(), reader or SseReader(EVENT_BYTES_MAX), fold or chat_fold()
    deltas = [d for chunk in chunks for event in reader.feed(chunk) for d in fold.event(event)]
    deltas += [d for event in reader.end() for d in fold.event(event)]
    for delta in [*deltas, *fold.close()]:
        message.add(delta)
    return message


def folded_whole(body: bytes, fold: JsonFold) -> Message:
    """The message of a body that came in one piece. Raises VendorError."""
    message = Message()
    for delta in [*fold.whole(json.loads(body)), *fold.close()]:
        message.add(delta)
    return message


@cache
def recorded(folder: str = "*", api: str = "openai.chat") -> dict[str, dict[str, Any]]:
    """Every recorded exchange of an interface, by id."""
    load_shared("wire/context_errors.jsonl")  # fails where the shared cases must be there and are not
    paths = (path for each in (OWN, FOLDER) for path in sorted((each / "wire").glob(f"{folder}/*.json")))
    cases = (json.loads(path.read_text()) for path in paths)
    return {case["id"]: case for case in cases if case["api"] == api}


def request_of(case: dict[str, Any]) -> dict[str, Any] | None:
    """The body of a recorded request, where it was kept whole and is an object."""
    body = (case.get("request") or {}).get("body")
    return body if isinstance(body, dict) and "_omitted" not in body else None


def expected(case: dict[str, Any]) -> Message:
    """What the case says, in our shape.

    The usage of the cases is the vendor's raw mapping; ours is normalised (research/wire 2.3), so that theirs is
    normalised here by the same sentence: reasoning that the total counts beside the output is added to it.
    """
    return Message(
        text=case["expected_text"],
        reasoning=case["expected_reasoning"] or "",
        tool_calls=[{key: call[key] for key in ("id", "name", "arguments")} for call in case["expected_tool_calls"]],
        usage=_usage(case["expected_usage"]),
        finish=case["expected_finish_reason"] or "",
        model=case["expected_model"],
    )


def _usage(raw: dict[str, Any] | None) -> Usage | None:
    if raw is None:
        return None
    figures = {name: raw[name] or 0 for name in ("input_tokens", "output_tokens", "total_tokens", "reasoning_tokens")}
    prompt, completion, reasoning = figures["input_tokens"], figures["output_tokens"], figures["reasoning_tokens"]
    if reasoning and figures["total_tokens"] == prompt + completion + reasoning:
        completion += reasoning
    ticks = raw["cost_in_usd_ticks"]
    said = raw["cost"]["total_cost"] if isinstance(raw["cost"], dict) else raw["cost"]
    cost = said if said is not None else ticks and ticks * 1e-10
    return Usage(
        prompt,
        raw["cached_input_tokens"] or 0,
        completion,
        reasoning,
        prompt + completion,
        cost,
        raw["cache_write_tokens"] or 0,
    )


def tags_of(case: dict[str, Any]) -> ThinkTags:
    """RD09: an expected text that has think tags is what stands there before they are routed."""
    return ThinkTags.CONTENT if "<think>" in case["expected_text"] else ThinkTags.ANYWHERE


def body_of(case: dict[str, Any]) -> bytes:
    """The bytes of a response."""
    response = case["response"]
    return base64.b64decode(response["body_b64"]) if response.get("body_b64") else (response["body"] or "").encode()


def chunks_of(case: dict[str, Any]) -> list[bytes]:
    """The chunks that a response came in, where they were recorded; else events of it."""
    body = body_of(case)
    chunks = [chunk.encode() for chunk in case["response"].get("chunks") or ()]
    if b"".join(chunks) == body:
        return [chunk for chunk in chunks if chunk]
    return [part + b"\n\n" for part in body.removesuffix(b"\n\n").split(b"\n\n")] if body.endswith(b"\n\n") else [body]
