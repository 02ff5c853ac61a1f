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

from msgspec.structs import replace

from turnwright_core.chat.message import Message, Role


def mark_conversation(messages: list[Message]) -> None:
    """Mark the last message, and the one before the last reply."""
    ends = [len(messages)]
    ends += [index for index, message in enumerate(messages) if message.role is Role.ASSISTANT][-1:]
    for end in ends:
        for index in reversed(range(end)):
            # Replies are left as they are: thinking takes no mark.
            if messages[index].role is not Role.ASSISTANT and messages[index].parts:
                messages[index] = _with_mark(messages[index])
                break


def _with_mark(message: Message) -> Message:
    """A message that has parts, with a mark at its end."""
    return replace(message, parts=(*message.parts[:-1], replace(message.parts[-1], cache=True)))
