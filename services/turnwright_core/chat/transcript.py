"""The transcript of a run as vendors accept it: known roles only, each call with one result, user messages merged.

    Message of a known role ──► pairs ──► merged

Pure. Each message depends only on earlier ones and on its own results, so adding to a run leaves everything sent before
unchanged (a stable prefix for prompt caches). A second pass changes nothing. Source: rows RL02, RL04, RL06; decisions
C28, C41, C44.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.chat.message import Message, Part, Role, Text, text_message

NO_RESULT: Final = "This call was not carried out."
"""Result for a call without one: it was lost, or its turn was stopped before it."""

LEFT_OUT: Final = "Earlier messages were left out."
"""Said before a reply that nothing of a user stands before, because it was left out or says nothing: vendors refuse a
conversation that begins with a reply, and many chat templates two replies in a row."""

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Message)

# Python 3.11 takes as long to look up a member of an enum as for all else that is done for a short message.
_USER: Final = Role.USER
_ASSISTANT: Final = Role.ASSISTANT
_TOOL: Final = Role.TOOL


class PlacedMessage(Struct, frozen=True, eq=False):
    """A message of a run at its position. One that is gone is not sent; but a result is sent as long as its call."""

    path: str
    position: int
    message: Message
    is_gone: bool = False


class Segment(Struct, eq=False):
    """A reply with its results, or what users say until the next reply."""

    begin: int
    """Index of its first message in the order of all."""
    end: int
    """One more than the index of the last message that is a part of it or of an earlier segment."""
    parts: list[PlacedMessage | None]
    """What it is made of; None for the result of a call that has none."""
    is_reply: bool
    ids: tuple[str, ...] = ()
    """The ids that its calls are sent with."""
    pieces: Sequence[str] = ()
    pieces_begin: int = 0
    chars: int = 0
    is_introduced: bool = False
    """Of a reply, whether LEFT_OUT stands before it."""


def _whole(lines: str) -> Sequence[str]:
    return (lines,)


class Conversation:
    """The messages of a run as they are sent, in pieces of JSON. Mutable: follows the changes of a run."""

    def __init__(self, pieces_of: Callable[[str], Sequence[str]] = _whole) -> None:
        """Empty. `pieces_of` divides lines of JSON, each with its newline, into pieces."""
        self.pieces: list[str] = []
        self.chars = 0
        """Code points of all pieces."""
        self.pieces_of = pieces_of
        self._by_path: dict[str, PlacedMessage] = {}
        self._order: list[PlacedMessage] = []
        """All of them, in order."""
        self._segments: list[Segment] = []
        self._calls: dict[str, list[tuple[Segment, int]]] = {}
        """By id the replies in `_segments` that call with it, in order, and the places of their results: one reply,
        unless somebody used an id again."""
        self._fresh_from: int | None = 0
        """From where in the order on there are changes that segments do not show yet; None: nowhere."""

    def put(self, path: str, one: PlacedMessage | None) -> None:
        order = self._order
        before = self._by_path.get(path)
        if before:
            if one and _is_same_message(before, one):
                return
            at = bisect_left(order, _place(before), key=_place)
            del order[at], self._by_path[path]
            self._touch(at)
        if one is None:
            return
        self._by_path[path] = one
        if order and order[-1].position >= one.position:
            at = bisect_left(order, _place(one), key=_place)
            order.insert(at, one)
            self._touch(at)
            return
        order.append(one)
        if self._fresh_from is None:
            self._fresh_from = len(order) - 1

    def _touch(self, at: int) -> None:
        if self._fresh_from is None or at < self._fresh_from:
            self._fresh_from = at

    def compose(self) -> None:
        if self._fresh_from is None:
            return
        before: dict[int, Segment] = {}
        segments, kept = self._segments, 0
        while self._fresh_from is not None:
            fresh, self._fresh_from = self._fresh_from, None
            begin = self._cut(fresh, before)
            kept = len(segments)
            self._divide(begin)
        same = segments[kept - 1].pieces_begin + len(segments[kept - 1].pieces) if kept else 0
        del self.pieces[same:]
        last = segments[kept - 1] if kept else None
        for segment in segments[kept:]:
            # A reply with calls is followed by their results.
            segment.is_introduced = segment.is_reply and (last is None or (last.is_reply and not last.ids))
            self._encode(segment, before.get(id(segment.parts[0])))
            last = segment

    def segments(self) -> Iterator[Segment]:
        """What the conversation consists of, in order."""
        self.compose()
        return iter(self._segments)

    def left_out(self, segments: Iterable[Segment]) -> list[PlacedMessage]:
        """The messages with content that are in none of these segments, in order."""
        shown = {part.path for segment in segments for part in segment.parts if part}
        return [one for one in self._order if one.path not in shown and _says_something(one.message)]

    def repairs(self) -> Iterator[tuple[str, str]]:
        """What was repaired so that vendors accept it: paths and sentences."""
        parts = {part.path: part for segment in self.segments() for part in segment.parts if part}
        for one in self._order:
            if one.message.role is not _TOOL or parts.get(one.path) is one:
                continue
            if one.path in parts:
                yield one.path, "A result without a call: it is sent as text."
            elif one.message.call_id in self._calls:
                yield one.path, f"A second result of the call {one.message.call_id}: it is left out."
        for call_id, callers in self._calls.items():
            for caller, _ in callers[1:]:
                assert caller.parts[0]
                yield caller.parts[0].path, f"The call id {call_id} is used again: the later call has another one."

    # ---- Segments

    def _cut(self, fresh: int, before: dict[int, Segment]) -> int:
        """Drop the segments that a change at an index affects; returns where the rest begins."""
        segments, begin = self._segments, fresh
        # Further messages of the user would belong to it.
        while segments and (segments[-1].end > fresh or not segments[-1].is_reply):
            segment = segments.pop()
            begin = min(begin, segment.begin)
            if segment.pieces:
                self.chars -= segment.chars
                before[id(segment.parts[0])] = segment
            if segment.is_reply and segment.parts[0]:
                for call in segment.parts[0].message.calls:
                    callers = self._calls.get(call.call_id)
                    if callers and callers[-1][0] is segment:
                        callers.pop()
                    if not callers:
                        self._calls.pop(call.call_id, None)
        return begin

    def _divide(self, begin: int) -> None:
        segments, order = self._segments, self._order
        for at in range(begin, len(order)):
            one = order[at]
            if one.message.role is _TOOL:
                if one.message.call_id in self._calls:
                    self._answer(one, at)
                    if self._fresh_from is not None:
                        return
                    continue
                one = PlacedMessage(one.path, one.position, text_message(_USER, one.message.text), one.is_gone)
            if one.is_gone or not _says_something(one.message):
                continue
            is_reply = one.message.role is _ASSISTANT
            if is_reply or not segments or segments[-1].is_reply:
                segments.append(Segment(at, at + 1, [one], is_reply))
                self._add_calls(segments[-1], one)
            else:
                segments[-1].parts.append(one)
                segments[-1].end = at + 1

    def _answer(self, result: PlacedMessage, at: int) -> None:
        """Put a result to the latest call of its id; a second one is left out."""
        caller, place = self._calls[result.message.call_id][-1]
        if caller.parts[place] is not None:
            return
        if caller.pieces:
            # They were made without this result.
            self._fresh_from = caller.begin
            return
        caller.parts[place] = result
        for segment in reversed(self._segments):
            segment.end = at + 1
            if segment is caller:
                break

    def _add_calls(self, reply: Segment, one: PlacedMessage) -> None:
        """Record the calls of a reply and the ids to send; an id that was used before is changed."""
        if not one.message.calls:
            return
        ids: list[str] = []
        for index, call in enumerate(one.message.calls, 1):
            callers = self._calls.setdefault(call.call_id, [])
            if not callers or callers[-1][0] is not reply:
                callers.append((reply, index))
            call_id = call.call_id or f"call_{one.position}_{call.index}"
            if len(callers) > 1:
                call_id = f"{call_id}+{len(callers)}"
            while call_id in ids:
                call_id += "+"
            ids.append(call_id)
            reply.parts.append(None)
        reply.ids = tuple(ids)

    def _encode(self, segment: Segment, before: Segment | None) -> None:
        """Set the pieces of a segment, which are reused if it has not changed."""
        parts = segment.parts
        first = parts[0]
        assert first
        is_alike = before and (before.ids, before.is_introduced) == (segment.ids, segment.is_introduced)
        if before and is_alike and before.parts == parts:
            segment.pieces, segment.chars = before.pieces, before.chars
        else:
            if not segment.is_reply:
                messages = [merge_user_messages([part.message for part in parts if part])]
            else:
                messages = _answered(first.message, segment.ids, parts[1:])
                if segment.is_introduced:
                    messages.insert(0, text_message(_USER, LEFT_OUT))
            segment.pieces = self.pieces_of(_ENCODER.encode_lines(messages).decode())
            segment.chars = sum(map(len, segment.pieces))
        segment.pieces_begin = len(self.pieces)
        self.pieces += segment.pieces
        self.chars += segment.chars


def _answered(reply: Message, ids: Sequence[str], results: Sequence[PlacedMessage | None]) -> list[Message]:
    """A reply and the results of its calls, in their order. `ids` are those that the calls are sent with."""
    messages = [reply]
    for index, (call, call_id, result) in enumerate(zip(reply.calls, ids, results, strict=True)):
        if call.call_id != call_id:
            before, after = messages[0].calls[:index], messages[0].calls[index + 1 :]
            messages[0] = replace(messages[0], calls=(*before, replace(call, call_id=call_id), *after))
        if result is None:
            messages.append(Message(_TOOL, (Text(NO_RESULT),), call_id=call_id, tool=call.name, failed=True))
        elif result.message.tool == call.name and result.message.call_id == call_id:
            messages.append(result.message)
        else:
            messages.append(replace(result.message, tool=call.name, call_id=call_id))
    return messages


def _place(one: PlacedMessage) -> tuple[int, str]:
    return one.position, one.path


def _is_same_message(one: PlacedMessage, other: PlacedMessage) -> bool:
    return (one.position, one.is_gone) == (other.position, other.is_gone) and one.message == other.message


def _says_something(message: Message) -> bool:
    """Whether a message has content: vendors refuse those of white space or nothing, as of a stopped reply."""
    for part in message.parts:
        # Most are short: a copy without white space costs no more than a search.
        if not isinstance(part, Text) or part.text.strip():
            return True
    if message.role is _USER:
        return False
    content = message.calls or message.thinking or message.server_blocks or message.reasoning
    return bool(content) or message.role is _TOOL


def merge_user_messages(messages: Sequence[Message]) -> Message:
    """What users say one after the other, as one message: texts joined by a blank line, images in their places."""
    if len(messages) == 1 and len(messages[0].parts) == 1:
        return messages[0]
    parts: list[Part] = []
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, Text) and not part.text:
            continue
        last = parts[-1] if parts else None
        if isinstance(part, Text) and isinstance(last, Text):
            parts[-1] = Text(f"{last.text}\n\n{part.text}")
        else:
            parts.append(part)
    return replace(messages[0], parts=tuple(parts))


def to_json_lines(messages: Iterable[Message]) -> list[str]:
    return [_ENCODER.encode(message).decode() + "\n" for message in messages]


def from_json_lines(text: str) -> list[Message]:
    return _DECODER.decode_lines(text)
