"""Prompt cache marks (Part.cache) in a request, for vendors that cache only what ends at one. Vendors take four.

| marked | why |
|---|---|
| last tool, system message | the same in every request of a run |
| message before the last reply | the end of the request before, where the vendor's cache ends |
| last message | the end of what the next request begins with |

A packet changes in the middle of its user message from turn to turn, so that only its tools and system message are
marked. Source: research/wire 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnwright.types.v1.message_pb2 import ROLE_ASSISTANT, Message


def mark_conversation(messages: Sequence[Message]) -> None:
    """Mark the last message, and the one before the last reply."""
    ends = [len(messages)]
    ends += [index for index, message in enumerate(messages) if message.role == ROLE_ASSISTANT][-1:]
    for end in ends:
        # Replies are left as they are: thinking takes no mark.
        if message := next((one for one in reversed(messages[:end]) if one.role != ROLE_ASSISTANT and one.parts), None):
            mark_end(message)


def mark_end(message: Message) -> None:
    """Mark the end of a message that has parts."""
    message.parts[-1].cache = True
