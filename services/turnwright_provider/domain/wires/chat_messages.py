"""The messages of a call in the form of chat completions.

A single text is a string, which every server accepts; several parts and images are a list. With cache marks every text
is a list, so that moving a mark does not change earlier messages. A tool's result can only be text: a mark is next to
it, and its images follow in a user message.
Source: research/wire 2.1.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from turnwright_values.replies import ToolCall

from turnwright_core.chat.message import Image, Message, Part, Text
from turnwright_core.json_text import JsonObject
from turnwright_provider.domain.wires.blocks import object_in
from turnwright_provider.domain.wires.chat_thinking import thinking_fields, thinking_parts
from turnwright_provider.domain.wires.images import images_of
from turnwright_provider.domain.wires.prepare_messages import ASSISTANT, TOOL, USER

CACHE_MARK: Final = {"cache_control": {"type": "ephemeral"}}


def chat_messages(messages: Iterable[Message], *, marks: bool) -> list[JsonObject]:
    """The messages, with cache marks if `marks`."""
    sent: list[JsonObject] = []
    images: list[Image] = []
    for message in messages:
        if images and message.role is not TOOL:
            sent.append(_shown(images, marks=marks))
            images = []
        written = _message(message, marks=marks)
        if message.role is not ASSISTANT or written["content"] or len(written) > len(("role", "content")):
            # A reply that says nothing is refused, such as one that was cut off while it reasoned.
            sent.append(written)
        if message.role is TOOL:
            images += images_of(message)
    return [*sent, _shown(images, marks=marks)] if images else sent


def _shown(images: Sequence[Image], *, marks: bool) -> JsonObject:
    return {"role": "user", "content": content_of(images, _part, marks=marks)}


def _message(message: Message, *, marks: bool) -> JsonObject:
    if message.role is ASSISTANT:
        return _reply(message, marks=marks)
    if message.role is USER:
        return {"role": "user", "content": content_of(message.parts, _part, marks=marks)}
    texts = _texts(message)
    if message.role is TOOL:
        mark = CACHE_MARK if marks and any(part.cache for part in texts) else {}
        return {"role": "tool", "content": content_of(texts, _part), "tool_call_id": message.call_id, **mark}
    return {"role": "system", "content": content_of(texts, _part, marks=marks)}


def _reply(message: Message, *, marks: bool) -> JsonObject:
    texts = _texts(message)
    content = content_of(texts, _part, marks=marks and any(text.cache for text in texts))
    if not (message.thinking or message.calls):
        return {"role": "assistant", "content": content}
    if thought := thinking_parts(message.thinking):
        shown = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
        content = [*thought, *shown]
    sent = {"role": "assistant", "content": content, **thinking_fields(message.thinking)}
    if message.calls:
        # Some servers refuse an empty text with calls.
        sent["content"] = content or None
        sent["tool_calls"] = [_call(call) for call in message.calls]
    return sent


def _call(call: ToolCall) -> JsonObject:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **_signed(call.signature)}


def _signed(signature: str) -> JsonObject:
    """Google's signature of a call; see tool_calls."""
    signed = object_in(signature)
    return {"extra_content": signed} if signed else {}


def _texts(message: Message) -> Sequence[Text]:
    if len(message.parts) == 1 and isinstance(message.parts[0], Text):
        return message.parts  # type: ignore[return-value]
    return [part for part in message.parts if isinstance(part, Text)]


def content_of(
    parts: Sequence[Part], encode: Callable[[Part], JsonObject], *, marks: bool = False
) -> str | list[JsonObject]:
    """Content as one string if it is a single text without a cache mark, else as encoded parts."""
    shown = [part for part in parts if isinstance(part, Image) or part.text] if len(parts) > 1 else parts
    if not shown:
        return ""
    if len(shown) == 1 and isinstance(shown[0], Text) and not (marks and shown[0].text):
        return shown[0].text
    return [{**encode(part), **(CACHE_MARK if marks and part.cache else {})} for part in shown]


def _part(part: Part) -> JsonObject:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": image_url(part)}}


def image_url(image: Image) -> str:
    """Its address, or a data URL."""
    return image.url or f"data:{image.mime};base64,{base64.b64encode(image.data).decode()}"
