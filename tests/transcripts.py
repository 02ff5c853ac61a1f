"""The conversation that all messages of a run come to, for tests that look at nothing in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnwright_core.chat.message import Message, Role, text_message
from turnwright_core.chat.run_message import MessageKind, RunMessage
from turnwright_core.chat.transcript import Conversation, Standing, decoded

_SENT_AS_THEY_ARE = (MessageKind.PROMPT, MessageKind.STEERING, MessageKind.REPLY)


def known(message: RunMessage, shown: Callable[[RunMessage], str]) -> Message:
    """The message, in a role that vendors know; `shown` renders one that has none."""
    is_result = message.kind is MessageKind.RESULT and message.message.call_id
    if message.kind in _SENT_AS_THEY_ARE or is_result:
        return message.message
    return text_message(Role.USER, shown(message))


def transcript(messages: Iterable[RunMessage], shown: Callable[[RunMessage], str]) -> list[Message]:
    """The messages to send. What is rendered as empty is left out."""
    made = Conversation()
    for message in messages:
        made.put(message.path, Standing(message.path, message.position, known(message, shown)))
    made.compose()
    return decoded("".join(made.pieces))
