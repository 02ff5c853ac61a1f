"""The messages of a run as a vendor takes them: known roles only, every call with one result, users merged.

    RunMessage ──► Message of a known role ──► pairs ──► merged

Pure, and each message depends on those before it and on its own results alone: what is added to a run leaves all that
was sent before as it was. A second pass changes nothing. Source: rows RL02, RL04, RL06; decisions C28, C41, C44.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec
from msgspec.structs import replace

from turnwright_core.chat.message import Message, Part, Role, Text, ToolCall, text_message
from turnwright_core.chat.run_message import MessageKind, RunMessage

CONVERSATION: Final = "conversation"
"""Role of the part of a packet that is a conversation: a message a line, as JSON."""

NO_RESULT: Final = "This call was not carried out."
"""Result of a call that has none: it was lost, or its turn was stopped before it."""

LEFT_OUT: Final = "Earlier messages were left out."
"""Beginning of a conversation whose own has given way: vendors refuse one that begins with a reply."""

_SAID: Final = (MessageKind.PROMPT, MessageKind.STEERING)
_REPLIES: Final = (MessageKind.REPLY, MessageKind.SUMMARY)

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Message)


def transcript(messages: Iterable[RunMessage], shown: Callable[[RunMessage], str]) -> list[Message]:
    """The messages as they are sent. `shown` says in words what no vendor has a role for; empty: nothing."""
    return _begun(merged(paired([_known(message, shown) for message in messages])))


def _begun(messages: list[Message]) -> list[Message]:
    is_reply = bool(messages) and messages[0].role is Role.ASSISTANT
    return [text_message(Role.USER, LEFT_OUT), *messages] if is_reply else messages


def _known(message: RunMessage, shown: Callable[[RunMessage], str]) -> Message:
    """The message in a role that vendors know."""
    is_result = message.kind is MessageKind.RESULT and message.message.call_id
    if message.kind in _SAID or message.kind in _REPLIES or is_result:
        return message.message
    return text_message(Role.USER, shown(message))


def paired(messages: Sequence[Message]) -> list[Message]:
    """The messages with every call followed by its one result, in the order of the calls.

    A call without one gets one that says so, a second one of a call is left out, and one of no call is a user's text.
    """
    results: dict[str, Message] = {}
    for message in messages:
        if message.role is Role.TOOL:
            results.setdefault(message.call_id, message)
    calls = {call.call_id for message in messages for call in message.calls}
    found: list[Message] = []
    for message in messages:
        if message.role is not Role.TOOL:
            found += [message, *(_result(call, results) for call in message.calls)]
        elif message.call_id not in calls:
            found.append(text_message(Role.USER, message.text))
    return found


def _result(call: ToolCall, results: dict[str, Message]) -> Message:
    result = results.get(call.call_id)
    if result is None:
        return Message(Role.TOOL, (Text(NO_RESULT),), call_id=call.call_id, tool=call.name, failed=True)
    return replace(result, tool=call.name)


def merged(messages: Iterable[Message]) -> list[Message]:
    """The messages without empty ones, those of the user that follow one another as one (RL02)."""
    found: list[Message] = []
    for role, group in groupby(filter(_says_something, messages), key=lambda message: message.role):
        together = list(group)
        found += [_one_user(together)] if role is Role.USER else together
    return found


def _says_something(message: Message) -> bool:
    """Whether there is anything in a message: vendors refuse an empty one, as a reply is that was stopped at once."""
    if message.role is Role.USER:
        return any(not isinstance(part, Text) or part.text for part in message.parts)
    told = (message.parts, message.calls, message.thinking, message.server_blocks, message.reasoning)
    return message.role is not Role.ASSISTANT or any(told)


def _one_user(users: Sequence[Message]) -> Message:
    parts: list[Part] = []
    for part in (part for user in users for part in user.parts):
        if isinstance(part, Text) and not part.text:
            continue
        last = parts[-1] if parts else None
        if isinstance(part, Text) and isinstance(last, Text):
            parts[-1] = Text(f"{last.text}\n\n{part.text}")
        else:
            parts.append(part)
    return replace(users[0], parts=tuple(parts))


def encoded(messages: Iterable[Message]) -> list[str]:
    """The messages as lines of JSON, each with the newline that ends it."""
    return [_ENCODER.encode(message).decode() + "\n" for message in messages]


def decoded(text: str) -> list[Message]:
    """The messages of lines that `encoded` made."""
    return [_DECODER.decode(line) for line in text.split("\n") if line]
