"""A conversation with edits: what is sent instead of it, in pieces of JSON.

Edits are applied to single messages, before those of the user are merged; a reply and its results stay together.
Only segments that edits touch, and those next to them, are encoded again: all others keep their pieces. Pure.
Source: rows OM24, OM27-OM30, OM34; architecture 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from turnwright_core.chat.message import Message, Role, text_message
from turnwright_core.chat.prompt_edits import (
    PromptEdit,
    PromptMessage,
    Verb,
    apply_prompt_edits,
    check_shape,
    merge_assistant_texts,
    with_text,
)
from turnwright_core.chat.transcript import (
    LEFT_OUT,
    Conversation,
    Segment,
    from_json_lines,
    merge_user_messages,
    to_json_lines,
)


def prompt_messages(segments: Iterable[Segment], speaker: Callable[[str], Role | None]) -> list[PromptMessage]:
    """The messages that edits can name, in order. `speaker` tells who speaks in one that is not what it is sent as."""
    parts = (part for segment in segments for part in segment.parts if part)
    return [PromptMessage(part.path, speaker(part.path) or part.message.role, part.message) for part in parts]


def added_chars_max(edits: Iterable[PromptEdit]) -> int:
    """The most code points that edits can add to a packet."""
    return sum(map(len, to_json_lines(Message(edit.role, edit.parts) for edit in edits)))


def edited_pieces(
    conversation: Conversation, speaker: Callable[[str], Role | None], edits: Sequence[PromptEdit], *, prefill: bool
) -> list[str]:
    """The pieces of the edited conversation.

    Raises PROMPT_MESSAGE_UNKNOWN, PROMPT_TARGET_MISSING, PROMPT_SHAPE_REFUSED.
    """
    segments = list(conversation.segments())
    stretches = _ranges_to_edit(_touched(segments, speaker, edits), len(segments))
    near = [segments[at] for stretch in stretches for at in stretch]
    # Results are sent with their replies: anything inserted between follows them.
    answers = {part.path for segment in near if segment.is_reply for part in segment.parts[1:] if part}
    spine = [
        one
        for one in merge_assistant_texts(apply_prompt_edits(prompt_messages(near, speaker), edits))
        if one.id not in answers
    ]
    check_shape(spine, prefill=prefill)
    stretch_of = {
        part.path: number
        for number, stretch in enumerate(stretches)
        for at in stretch
        for part in segments[at].parts
        if part
    }
    made: list[list[PromptMessage]] = [[] for _ in stretches]
    number = 0
    for one in spine:
        number = stretch_of.get(one.id, number)
        made[number].append(one)
    sender, pieces, done = _Sender(near, conversation.pieces_of), list[str](), 0
    for stretch, messages in zip(stretches, made, strict=True):
        begin, end = (_pieces_begin(conversation, segments, at) for at in (stretch.start, stretch.stop))
        pieces += conversation.pieces[done:begin]
        sender.add(pieces, _groups(merge_added_replies(messages)))
        done = end
    return pieces + conversation.pieces[done:]


def _touched(
    segments: Sequence[Segment], speaker: Callable[[str], Role | None], edits: Iterable[PromptEdit]
) -> Iterator[int]:
    """Indices of the segments that edits change, or add something to."""
    named = {edit.message_id for edit in edits if edit.message_id}
    if named:
        yield from (at for at, one in enumerate(segments) if any(part and part.path in named for part in one.parts))
    verbs = {edit.verb for edit in edits}
    if Verb.PREPEND in verbs:
        yield 0
    if Verb.APPEND in verbs:
        yield len(segments) - 1
    for role in {edit.role for edit in edits if edit.verb is Verb.APPEND_TO}:
        # A message that is not a reply may come from somebody other than the user.
        latest = (
            at
            for at in range(len(segments) - 1, -1, -1)
            if segments[at].is_reply is (role is Role.ASSISTANT)
            and any(part and (speaker(part.path) or part.message.role) is role for part in segments[at].parts)
        )
        yield from islice(latest, 1)


def _ranges_to_edit(touched: Iterable[int], count: int) -> list[range]:
    """Ranges of the segments that are touched and of those next to them, which may be merged with them."""
    near = sorted({at + beside for at in touched for beside in (-1, 0, 1) if 0 <= at + beside < count})
    found: list[range] = []
    for at in near:
        if found and found[-1].stop == at:
            found[-1] = range(found[-1].start, at + 1)
        else:
            found.append(range(at, at + 1))
    return found or [range(0)]


def _pieces_begin(conversation: Conversation, segments: Sequence[Segment], at: int) -> int:
    return segments[at].pieces_begin if at < len(segments) else len(conversation.pieces)


def merge_added_replies(messages: Iterable[PromptMessage]) -> list[PromptMessage]:
    """The messages, with added messages of the assistant merged with adjacent ones.

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
        self._of_users = {
            _identity(part.message for part in one.parts if part): one for one in segments if not one.is_reply
        }

    def add(self, pieces: list[str], groups: Iterable[Sequence[PromptMessage]]) -> None:
        before: Message | None = None
        for group in groups:
            first = group[0]
            if reply := self._replies.get(first.id):
                # At the beginning of a stretch nothing was added before it.
                is_alone = before is not None and before.role is Role.ASSISTANT and not before.calls
                is_introduced = is_alone if before else reply.is_introduced
                pieces += self._replied(reply, first.message, is_introduced=is_introduced)
            elif kept := self._of_users.get(_identity(one.message for one in group)):
                pieces += kept.pieces
            else:
                messages = [one.message for one in group]
                pieces += self._encoded(
                    [merge_user_messages(messages) if first.message.role is Role.USER else first.message]
                )
            before = first.message

    def _replied(self, reply: Segment, message: Message, *, is_introduced: bool) -> Sequence[str]:
        before = reply.parts[0].message if reply.parts[0] else message
        if message is before and is_introduced == reply.is_introduced:
            return reply.pieces
        introduction = [text_message(Role.USER, LEFT_OUT)] if is_introduced else []
        sent, *results = from_json_lines("".join(reply.pieces))[reply.is_introduced :]
        sent = replace(sent, parts=message.parts, thinking=message.thinking)
        return self._encoded([*introduction, sent, *results])

    def _encoded(self, messages: Iterable[Message]) -> Sequence[str]:
        return [piece for line in to_json_lines(messages) for piece in self._pieces_of(line)]


def _identity(messages: Iterable[Message]) -> tuple[int, ...]:
    return tuple(map(id, messages))
