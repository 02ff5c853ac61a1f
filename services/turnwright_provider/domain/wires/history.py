"""Preparation of a call's messages for its model, for every wire.

Opaque blocks and signatures are only sent back to the model that wrote them (RD08). Each call has a unique id in the
request, the vendor's if possible, and every result has the id of its call.
Arguments that are no JSON object, because a model wrote them so or was cut off, are sent as `{}`: many servers parse
them and would refuse all that follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from turnwright_core.chat.message import Message, Role, ToolCall
from turnwright_provider.domain.model_call import Dropped, ModelCall
from turnwright_provider.domain.wires.blocks import TEXT

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

# Python 3.11 takes as long to look up a member of an enum as for all else that is done for a short message.
SYSTEM: Final = Role.SYSTEM
USER: Final = Role.USER
ASSISTANT: Final = Role.ASSISTANT
TOOL: Final = Role.TOOL

_FOREIGN: Final = "Only the model that wrote it can be sent it."


def history(call: ModelCall) -> tuple[list[Message], list[Dropped]]:
    """The messages with the ids to send, and what is left out of replies written by another model."""
    left_out: set[str] = set()
    messages: list[Message] = []
    for message in _with_ids_sent(call.messages):
        is_own = bool(message.vendor_model) and message.vendor_model == call.vendor_model
        if is_own or message.role is not ASSISTANT:
            messages.append(message)
            continue
        left_out |= {name for name, value in _opaque(message).items() if value}
        calls = tuple(replace(one, signature="") for one in message.calls)
        messages.append(replace(message, thinking=(), server_blocks=(), citations=(), calls=calls))
    return messages, [Dropped(name, _FOREIGN) for name in sorted(left_out)]


def tool_names(messages: Iterable[Message]) -> dict[str, str]:
    """The names of called tools, by the ids to send."""
    return {one.id: one.name for message in messages for one in message.calls}


def _opaque(message: Message) -> dict[str, bool]:
    return {
        "thinking": any(block.type != TEXT or block.signature for block in message.thinking),
        "server_blocks": bool(message.server_blocks),
        "signatures": any(call.signature for call in message.calls),
    }


def _with_ids_sent(messages: Iterable[Message]) -> Iterable[Message]:
    taken: set[str] = set()
    sent: dict[str, str] = {}
    for place, message in enumerate(messages):
        if message.role is TOOL:
            answered = sent.get(message.call_id, message.call_id)
            yield message if answered == message.call_id else replace(message, call_id=answered)
            continue
        if not message.calls:
            yield message
            continue
        calls = tuple(_as_sent(one, _sent_id(one, taken, place)) for one in message.calls)
        for old, new in zip(message.calls, calls, strict=True):
            sent[old.id] = sent[old.call_id] = new.id
        sent.pop("", None)
        yield message if calls == message.calls else replace(message, calls=calls)


def _as_sent(call: ToolCall, sent_id: str) -> ToolCall:
    arguments = call.arguments if _is_object(call.arguments) else "{}"
    return call if (call.id, call.arguments) == (sent_id, arguments) else replace(call, id=sent_id, arguments=arguments)


def _is_object(text: str) -> bool:
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _sent_id(call: ToolCall, taken: set[str], place: int) -> str:
    """The vendor's id; ours if there is none, or if an earlier call has it. A sent id never changes later."""
    is_free = bool(call.id) and (call.id not in taken or not call.call_id)
    unique_id = (call.id if is_free else call.call_id) or f"call_{place}_{call.index}"
    taken.add(unique_id)
    return unique_id
