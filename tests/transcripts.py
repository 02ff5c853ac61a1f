"""The conversation that all messages of a run come to, for tests that look at nothing in between."""

from __future__ import annotations

from collections.abc import Iterable

from turnwright_values.types import RunMessage

from turnwright_core.chat.message import Message
from turnwright_core.chat.transcript import Conversation, PlacedMessage, from_json_lines


def conversation(messages: Iterable[RunMessage]) -> Conversation:
    made = Conversation()
    for one in messages:
        made.put(one.path, PlacedMessage(one.path, one.position, one.message))
    made.compose()
    return made


def transcript(messages: Iterable[RunMessage]) -> list[Message]:
    """The messages to send."""
    return from_json_lines("".join(conversation(messages).pieces))
