"""Recorded vendor traffic (cases/wire), and the fold of deltas that a client would do."""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cases import FOLDER, load_cases
from turnwright_core.chat.deltas import AppendContent, AppendReasoning, SetToolCalls, SetUsage
from turnwright_core.runs import Usage
from turnwright_provider.domain.model_call import Finish, VendorEvent
from turnwright_provider.domain.sse import SseReader
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat_reply import ChatFold

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

    def add(self, event: VendorEvent) -> None:
        match event:
            case AppendContent(text):
                self.text += text
            case AppendReasoning(text):
                self.reasoning += text
            case SetToolCalls(calls):
                self.tool_calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls]
            case SetUsage(usage):
                self.usage = usage
            case Finish(reason, usage, model):
                self.finish, self.model = reason, model
                assert usage == self.usage


def folded(chunks: Iterable[bytes], *, think_tags: ThinkTags = ThinkTags.ANYWHERE) -> Message:
    """The message of a body that arrives in these chunks. Raises VendorError."""
    message, reader, fold = Message(), SseReader(EVENT_BYTES_MAX), ChatFold(think_tags)
    deltas = [d for chunk in chunks for event in reader.feed(chunk) for d in fold.event(event)]
    deltas += [d for event in reader.end() for d in fold.event(event)]
    for delta in [*deltas, *fold.close()]:
        message.add(delta)
    return message


@cache
def recorded(folder: str = "*") -> dict[str, dict[str, Any]]:
    """Every recorded exchange of the chat completions interface, by id."""
    load_cases("wire/context_errors.jsonl")  # skips or fails where the cases are not there
    cases = (json.loads(path.read_text()) for path in sorted((FOLDER / "wire").glob(f"{folder}/*.json")))
    return {case["id"]: case for case in cases if case["api"] == "openai.chat"}


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
