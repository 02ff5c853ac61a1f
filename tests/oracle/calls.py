"""Calls that sdk_requests.py makes by the official SDKs as well, by the same names."""

from __future__ import annotations

import base64
from typing import Any, Final

from msgspec.structs import replace
from turnwright_values.replies import ThinkingBlock, ToolCall

from turnwright_core.chat.message import Image, Message, Part, Role, Text, text_message
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ASKED: Final = "What is in a.py?"
URL: Final = "https://example.org/a.png"
SCHEMA: Final = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
OURS: Final = "v/m"
READ: Final = ToolSpec("read", "Reads a file.", SCHEMA)
NOW: Final = ToolSpec("now", "The time.", {"type": "object", "properties": {}})
SHOWN, LINKED = Image("image/png", PNG), Image("image/png", url=URL)
THOUGHT: Final = ThinkingBlock("thinking", 0, text="I should look.", signature="c2lnbmVk")
HIDDEN: Final = ThinkingBlock("redacted_thinking", 0, data="b3BhcXVl")
ENCRYPTED: Final = ThinkingBlock("reasoning", 0, id="rs_1", data='{"summary": [], "encrypted_content": "b3BhcXVl"}')


def user(*parts: Part | str) -> Message:
    return Message(Role.USER, tuple(Text(part) if isinstance(part, str) else part for part in parts or (ASKED,)))


def called(*ids: str, text: str = "", thinking: tuple[ThinkingBlock, ...] = (), first: int = 0, **more: Any) -> Message:
    """A reply with calls; `first` is the block of the first of them."""
    calls = tuple(
        ToolCall("read", '{"path": "a.py"}', n, each, f"tw_{each}", block=first + n, **more)
        for n, each in enumerate(ids)
    )
    said = (Text(text),) if text else ()
    return Message(Role.ASSISTANT, said, calls=calls, thinking=thinking, vendor_model=OURS)


def result(call_id: str, *parts: Part | str, failed: bool = False) -> Message:
    said = user(*parts or ("x = 1",)).parts
    return Message(Role.TOOL, said, call_id=call_id, tool="read", failed=failed)


def call(*messages: Message, **fields: Any) -> ModelCall:
    return ModelCall("m", messages or (user(),), vendor_model=OURS, **fields)


def _choosing(**choice: Any) -> ModelCall:
    return call(tools=(READ,), tool_choice=ToolChoice(**choice))


def _answered(*messages: Message, **fields: Any) -> ModelCall:
    return call(user(), *messages, tools=(READ,), **fields)


SYSTEM: Final = text_message(Role.SYSTEM, "Be brief.")
SAID: Final = Message(Role.ASSISTANT, (Text("x = 1"),), vendor_model=OURS)
FOREIGN: Final = replace(called("c1", text="I look.", thinking=(THOUGHT,), first=2), vendor_model="other/m")

CALLS: Final[dict[str, ModelCall]] = {
    "text": call(),
    "system": call(SYSTEM, user()),
    "several turns": call(SYSTEM, user(), SAID, user("And b.py?")),
    "odd characters": call(user('\u00e4\u6f22\U0001f600\u2028"\\\x00\n\t</s>')),
    "several texts": call(user("One. ", "Two.")),
    "temperature": call(temperature=0.5),
    "output limit": call(output_tokens_max=100),
    "stop": call(stop=("END", "STOP")),
    "metadata": call(metadata={"user_id": "u1"}),
    "image by bytes": call(user(ASKED, SHOWN)),
    "image by url": call(user(ASKED, LINKED)),
    "images between texts": call(user(LINKED, "and", SHOWN, "differ?")),
    "tool": call(tools=(READ,)),
    "two tools": call(tools=(READ, NOW)),
    "strict tool": call(tools=(replace(READ, strict=True),)),
    "choice auto": _choosing(),
    "choice none": _choosing(mode="none"),
    "choice required": _choosing(mode="required"),
    "choice of one": _choosing(tool="read"),
    "one call at most": _choosing(single=True),
    "result": _answered(called("c1"), result("c1")),
    "words beside a call": _answered(called("c1", text="I look.", first=1), result("c1")),
    "two results": _answered(called("c1", "c2"), result("c1"), result("c2", "y = 2")),
    "result and words": _answered(called("c1"), result("c1"), user("Go on.")),
    "failed result": _answered(called("c1"), result("c1", "no such file", failed=True)),
    "result by our id": _answered(called("c1"), result("tw_c1")),
    "result with an image": _answered(called("c1"), result("c1", "It is this.", SHOWN)),
    "json object": call(response_format=ResponseFormat()),
    "json schema": call(response_format=ResponseFormat(SCHEMA, "place", strict=True)),
    "reasoning low": call(reasoning=Reasoning("low")),
    "reasoning high": call(reasoning=Reasoning("high")),
    "reasoning off": call(reasoning=Reasoning("off")),
    "reasoning tokens": call(reasoning=Reasoning(tokens=5000)),
    "thinking back": _answered(
        called("c1", thinking=(THOUGHT,), first=1), result("c1"), reasoning=Reasoning(tokens=5000)
    ),
    "hidden thinking back": _answered(
        called("c1", text="I look.", thinking=(HIDDEN, replace(THOUGHT, index=1)), first=3),
        result("c1"),
        reasoning=Reasoning(tokens=5000),
    ),
    "encrypted reasoning back": _answered(called("c1", thinking=(ENCRYPTED,), first=1), result("c1")),
    "signed call back": _answered(called("c1", signature="b3BhcXVl"), result("c1")),
    "another model's thinking": _answered(FOREIGN, result("c1")),
    "cached system": call(Message(Role.SYSTEM, (Text("Be brief.", cache=True),)), user()),
    "cached tool": call(tools=(NOW, replace(READ, cache=True))),
    "cached turn": call(user(Text(ASKED, cache=True)), SAID, user("So?")),
    "extra": call(extra={"top_p": 0.9}),
    "extra in an object": call(extra={"generationConfig": {"topP": 0.9}}),
}
