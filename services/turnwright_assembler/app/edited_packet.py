"""A packet with edits: what stands before and after its user message, as lines of a conversation.

In a packet the user message is the only one that edits can name, by the path of the loop's prompt.
Source: rows OM17-OM20, OM27, OM34; architecture 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnwright_assembler.app.packet import ComposedPacket, PacketMessages, short_pieces
from turnwright_assembler.domain.envelope import well_formed
from turnwright_core.chat.edited_conversation import merge_added_replies
from turnwright_core.chat.message import Message, Role, text_message
from turnwright_core.chat.prompt_edits import (
    PromptEdit,
    PromptMessage,
    apply_prompt_edits,
    check_shape,
    merge_assistant_texts,
)
from turnwright_core.chat.transcript import to_json_lines
from turnwright_core.packet_digest import CONVERSATION


def packet_message(packet: ComposedPacket) -> PromptMessage:
    return PromptMessage(packet.prompt.path if packet.prompt else "", Role.USER, text_message(Role.USER, packet.user))


def edited_packet(packet: ComposedPacket, edits: Sequence[PromptEdit], *, prefill: bool) -> tuple[PacketMessages, int]:
    """The messages of the packet with the edits, and the code points that these added.

    Raises PROMPT_MESSAGE_UNKNOWN, PROMPT_TARGET_MISSING, PROMPT_SHAPE_REFUSED.
    """
    own = packet_message(packet)
    [sections] = own.message.parts
    made = merge_assistant_texts(apply_prompt_edits([own], edits))
    check_shape(made, prefill=prefill)
    made = merge_added_replies(made)
    at = next(index for index, one in enumerate(made) if one.message.parts[0] is sections)
    added = made[at].message.parts[1:]
    before = _lines(one.message for one in made[:at])
    after = _lines([*([Message(Role.USER, added)] if added else ()), *(one.message for one in made[at + 1 :])])
    system, user, *tools = packet.messages
    messages = (system, *_conversation(before), user, *_conversation(after), *tools)
    return messages, sum(map(len, before)) + sum(map(len, after))


def _lines(messages: Iterable[Message]) -> Sequence[str]:
    return short_pieces([well_formed(line) for line in to_json_lines(messages)])


def _conversation(pieces: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    return [(CONVERSATION, pieces)] if pieces else []
