"""Preparation of a call's messages for its model, for every wire.

Opaque blocks and signatures are only sent back to the model that wrote them (RD08). Each call has a unique id in the
request, the vendor's if possible, and every result has the id of its call. A long id goes to the model alone that made
it: a proxy may have put a signature into it.
Arguments that are not a JSON object, because the model wrote them like that or was truncated, are sent as `{}`: many
servers parse them, and would refuse every later request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace
from turnwright_values.replies import ToolCall

from turnwright_core.chat.message import Message, Role
from turnwright_core.limits import CALL_ID_CHARS_MAX
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.refused import without_refused
from turnwright_provider.domain.wires.blocks import TEXT

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

ID_CHARS_MAX: Final = 40
"""Longest id of another model's call: OpenAI takes no longer ones, other servers (vLLM, proxies) make them."""

NAME_CHARS_MAX: Final = 64
"""Longest name of a tool that vendors take."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")

# Python 3.11 takes as long to look up a member of an enum as for all else that is done for a short message.
SYSTEM: Final = Role.SYSTEM
USER: Final = Role.USER
ASSISTANT: Final = Role.ASSISTANT
TOOL: Final = Role.TOOL

_FOREIGN: Final = "Only the model that wrote it can be sent it."


def prepare_messages(call: ModelCall) -> tuple[list[Message], dict[str, str]]:
    """The messages with the ids to send, and what is left out of replies written by another model: field -> reason."""
    left_out: set[str] = set()
    messages: list[Message] = []
    for message in _with_ids_sent(without_refused(call), call.vendor_model):
        if message.role is not ASSISTANT or is_own(message, call.vendor_model):
            messages.append(message)
            continue
        left_out |= {name for name, value in _opaque(message).items() if value}
        calls = tuple(replace(one, signature="") for one in message.calls)
        messages.append(replace(message, thinking=(), server_blocks=(), citations=(), calls=calls))
    return messages, dict.fromkeys(sorted(left_out), _FOREIGN)


def is_own(message: Message, vendor_model: str) -> bool:
    return bool(message.vendor_model) and message.vendor_model == vendor_model


def tool_names(messages: Iterable[Message]) -> dict[str, str]:
    """The names of called tools, by the ids to send."""
    return {one.id: one.name for message in messages for one in message.calls}


def _opaque(message: Message) -> dict[str, bool]:
    return {
        "thinking": any(block.type != TEXT or block.signature for block in message.thinking),
        "server_blocks": bool(message.server_blocks),
        "signatures": any(call.signature for call in message.calls),
    }


def _with_ids_sent(messages: Iterable[Message], vendor_model: str) -> Iterable[Message]:
    taken: set[str] = set()
    sent: dict[str, str] = {}
    for index, message in enumerate(messages):
        if message.role is TOOL:
            answered, name = sent.get(message.call_id, message.call_id), message.tool and _sent_name(message.tool)
            is_same = (answered, name) == (message.call_id, message.tool)
            yield message if is_same else replace(message, call_id=answered, tool=name)
            continue
        if not message.calls:
            yield message
            continue
        chars_max = CALL_ID_CHARS_MAX if is_own(message, vendor_model) else ID_CHARS_MAX
        calls = tuple(_as_sent(one, _sent_id(one, taken, index, chars_max)) for one in message.calls)
        # A vendor's id may be one of ours for another call: results name ours.
        sent |= {old.id: new.id for old, new in zip(message.calls, calls, strict=True)}
        sent |= {old.call_id: new.id for old, new in zip(message.calls, calls, strict=True)}
        sent.pop("", None)
        yield message if calls == message.calls else replace(message, calls=calls)


def _as_sent(call: ToolCall, sent_id: str) -> ToolCall:
    arguments = call.arguments if _is_object(call.arguments) else "{}"
    name = _sent_name(call.name)
    if (call.id, call.name, call.arguments) == (sent_id, name, arguments):
        return call
    return replace(call, id=sent_id, name=name, arguments=arguments)


def _sent_name(name: str) -> str:
    """The name of a tool in characters that vendors take: a model may call a tool that was not offered."""
    return name if _NAME.fullmatch(name) else _ODD.sub("_", name)[:NAME_CHARS_MAX] or "_"


def _is_object(text: str) -> bool:
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _sent_id(call: ToolCall, taken: set[str], place: int, chars_max: int) -> str:
    """The vendor's id; ours if there is none, or if it is too long or an earlier call has it.

    An id that was sent to a model never changes.
    """
    is_short = len(call.id) <= chars_max or not call.call_id
    is_free = bool(call.id) and is_short and (call.id not in taken or not call.call_id)
    unique_id = (call.id if is_free else call.call_id) or f"call_{place}_{call.index}"
    while unique_id in taken and call.call_id:
        unique_id += "_"
    taken.add(unique_id)
    return unique_id
