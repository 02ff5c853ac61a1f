"""A conversation with edits: what is sent instead of it, in pieces of JSON.

Edits act on messages one by one, before those of the user are sent as one; a reply and its results stay together. What
they leave as it was is not encoded again, and has the bytes of the conversation without edits. Pure.
Source: rows OM24, OM27-OM30, OM34; architecture 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from turnwright_core.chat.message import Message, Role
from turnwright_core.chat.prompt_edits import PromptEdit, PromptMessage, check_shape, edited, joined, with_text
from turnwright_core.chat.transcript import Segment, decoded, encoded, together


def prompt_messages(segments: Iterable[Segment], speaker: Callable[[str], Role | None]) -> list[PromptMessage]:
    """The messages that edits can name, in order. `speaker` tells who speaks in one that is not what it is sent as."""
    parts = (part for segment in segments for part in segment.parts if part)
    return [PromptMessage(part.path, speaker(part.path) or part.message.role, part.message) for part in parts]


def added_chars_max(edits: Iterable[PromptEdit]) -> int:
    """The most code points that edits can add to a packet."""
    return sum(map(len, encoded(Message(edit.role, edit.parts) for edit in edits)))


def edited_pieces(
    segments: Sequence[Segment],
    messages: Iterable[PromptMessage],
    edits: Iterable[PromptEdit],
    pieces_of: Callable[[str], Sequence[str]],
    *,
    prefill: bool,
) -> list[str]:
    """The pieces of the edited conversation; `messages` are those of `prompt_messages`.

    Raises PROMPT_MESSAGE_UNKNOWN, PROMPT_TARGET_MISSING, PROMPT_SHAPE_REFUSED.
    """
    # Results are sent with their replies: what stands between follows them.
    answers = {part.path for segment in segments if segment.is_reply for part in segment.parts[1:] if part}
    spine = [one for one in joined(edited(messages, edits)) if one.id not in answers]
    check_shape(spine, prefill=prefill)
    return _Sender(segments, pieces_of).pieces(_groups(alternating(spine)))


def alternating(messages: Iterable[PromptMessage]) -> list[PromptMessage]:
    """The messages, in which those of the assistant that edits added are one with those next to them.

    Many chat templates refuse two in a row. One that calls is followed by its results.
    """
    found: list[PromptMessage] = []
    for one in messages:
        last = found[-1] if found else None
        if last is None or not _is_one(last, one):
            found.append(one)
        elif one.is_added:
            found[-1] = replace(last, message=with_text(last.message, after=one.text))
        else:
            found[-1] = replace(one, message=with_text(one.message, before=last.text))
    return found


def _is_one(last: PromptMessage, one: PromptMessage) -> bool:
    are_replies = last.role is one.role is Role.ASSISTANT
    return are_replies and not last.message.calls and (last.is_added or one.is_added)


def _groups(messages: Iterable[PromptMessage]) -> list[list[PromptMessage]]:
    """What is sent as one message of the user, and each reply."""
    groups: list[list[PromptMessage]] = []
    for one in messages:
        is_user = one.message.role is Role.USER
        if is_user and groups and groups[-1][0].message.role is Role.USER:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


class _Sender:
    """Encodes groups, those that are segments of the conversation by their own pieces."""

    def __init__(self, segments: Sequence[Segment], pieces_of: Callable[[str], Sequence[str]]) -> None:
        self._pieces_of = pieces_of
        self._replies = {
            segment.parts[0].path: segment for segment in segments if segment.is_reply and segment.parts[0]
        }
        self._said = {
            _identity(part.message for part in one.parts if part): one for one in segments if not one.is_reply
        }

    def pieces(self, groups: Iterable[Sequence[PromptMessage]]) -> list[str]:
        pieces: list[str] = []
        for group in groups:
            first = group[0]
            if reply := self._replies.get(first.id):
                pieces += self._replied(reply, first.message, is_first=not pieces)
            elif kept := self._said.get(_identity(one.message for one in group)):
                pieces += kept.pieces
            else:
                said = [one.message for one in group]
                pieces += self._encoded([together(said) if first.message.role is Role.USER else first.message])
        return pieces

    def _replied(self, reply: Segment, message: Message, *, is_first: bool) -> Sequence[str]:
        """A reply with its results."""
        before = reply.parts[0].message if reply.parts[0] else message
        # Without edits, a conversation that begins with a reply gets a note that earlier messages were left out.
        is_introduced = reply.pieces_begin == 0
        if message is before and (is_first or not is_introduced):
            return reply.pieces
        introduction, sent = [], decoded("".join(reply.pieces))
        if is_introduced:
            introduction, sent = sent[:1] if is_first else [], sent[1:]
        return self._encoded(
            [*introduction, replace(sent[0], parts=message.parts, thinking=message.thinking), *sent[1:]]
        )

    def _encoded(self, messages: Iterable[Message]) -> Sequence[str]:
        return [piece for line in encoded(messages) for piece in self._pieces_of(line)]


def _identity(messages: Iterable[Message]) -> tuple[int, ...]:
    return tuple(map(id, messages))
