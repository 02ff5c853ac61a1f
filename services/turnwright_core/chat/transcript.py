"""The transcript of a run as vendors accept it: known roles only, each call with one result, user messages merged.

    RunMessage ──► Message of a known role ──► pairs ──► merged

Pure. Each message depends only on earlier ones and on its own results, so adding to a run leaves everything sent before
unchanged (a stable prefix for prompt caches). A second pass changes nothing. Source: rows RL02, RL04, RL06; decisions
C28, C41, C44.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.chat.message import Message, Part, Role, Text, ToolCall, text_message
from turnwright_core.chat.run_message import MessageKind, RunMessage

NO_RESULT: Final = "This call was not carried out."
"""Result for a call without one: it was lost, or its turn was stopped before it."""

LEFT_OUT: Final = "Earlier messages were left out."
"""First message of a conversation whose beginning was evicted: vendors refuse one that begins with a reply."""

_SAID: Final = (MessageKind.PROMPT, MessageKind.STEERING)

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(Message)

# Python 3.11 takes as long to look up a member of an enum as for all else that is done for a short message.
_USER: Final = Role.USER
_ASSISTANT: Final = Role.ASSISTANT
_TOOL: Final = Role.TOOL


def known(message: RunMessage, shown: Callable[[RunMessage], str]) -> Message:
    """The message, in a role that vendors know."""
    is_result = message.kind is MessageKind.RESULT and message.message.call_id
    if message.kind in _SAID or message.kind is MessageKind.REPLY or is_result:
        return message.message
    return text_message(_USER, shown(message))


class Standing(Struct, frozen=True, eq=False):
    """A message of a run in a known role. What is gone does not stand; but a result stands as long as its call."""

    path: str
    position: int
    message: Message
    is_gone: bool = False


class Segment(Struct, frozen=True):
    """A reply with its results, or what users say until the next reply."""

    begin: int
    """Where it begins in the order of all that stands by itself."""
    end: int
    pieces_begin: int
    parts: tuple[Standing | None, ...]
    """What it is made of; None for the result of a call that has none."""
    pieces: tuple[str, ...]
    is_reply: bool
    chars: int
    ids: tuple[str, ...] = ()
    """The ids that its calls are sent with."""


def _whole_line(line: str) -> Sequence[str]:
    return (line,)


class Conversation:
    """The messages of a run as they are sent, in pieces of JSON. Mutable: follows the changes of a run."""

    def __init__(self, pieces_of: Callable[[str], Sequence[str]] = _whole_line) -> None:
        """Empty. `pieces_of` divides a line of JSON, with its newline, into pieces."""
        self.pieces: list[str] = []
        self.chars = 0
        """Code points of all pieces."""
        self._pieces_of = pieces_of
        self._standing: dict[str, Standing] = {}
        self._spine: list[Standing] = []
        """Replies, and what is said to the model, in their order; results are found by their calls."""
        self._results: dict[str, list[Standing]] = {}
        """By the ids of their calls, in order."""
        self._callers: dict[str, list[Standing]] = {}
        """The replies that call with an id, in order: one, unless somebody used an id again."""
        self._orphans: dict[str, Standing] = {}
        """Results without a call, as what is said."""
        self._segments: list[Segment] = []
        self._fresh_from: int | None = 0
        """From where on segments are to be made again; None: nowhere."""

    def put(self, path: str, one: Standing | None) -> None:
        """Add, replace or remove a message."""
        before = self._standing.get(path)
        if before and one and _says_the_same(before, one):
            return
        if before:
            del self._standing[path]
            self._take_out(before)
        if one:
            self._standing[path] = one
            self._bring_in(one)

    def compose(self) -> int:
        """Bring the pieces up to date; the answer is how many at the beginning are what they were before."""
        same = len(self.pieces)
        if self._fresh_from is None:
            return same
        fresh, self._fresh_from = self._fresh_from, None
        before: dict[int, Segment] = {}
        while self._segments and _is_touched(self._segments[-1], fresh):
            segment = self._segments.pop()
            self.chars -= segment.chars
            same = segment.pieces_begin
            before[id(segment.parts[0])] = segment
        del self.pieces[same:]
        at = self._segments[-1].end if self._segments else 0
        while at < len(self._spine):
            segment = self._segment(at, before)
            self._segments.append(segment)
            self.pieces += segment.pieces
            self.chars += segment.chars
            at = segment.end
        return same

    @property
    def stable(self) -> int:
        """How many pieces stay as they are when the run goes on: all but what users said last."""
        last = self._segments[-1] if self._segments else None
        return len(self.pieces) if last is None or last.is_reply else last.pieces_begin

    def segments(self) -> Iterator[Segment]:
        """What the conversation consists of, in order."""
        self.compose()
        return iter(self._segments)

    def left_out(self, segments: Iterable[Segment]) -> list[Standing]:
        """What says something and is in none of these segments, in order."""
        shown = {part.path for segment in segments for part in segment.parts if part}
        left = (one for one in self._standing.values() if one.path not in shown and _says_something(one.message))
        return sorted(left, key=_place)

    def heals(self) -> Iterator[tuple[str, str]]:
        """What is not as it should be, and stands in a form that vendors take: paths and sentences."""
        for path in self._orphans:
            yield path, "A result of no call: it is told as text."
        for call_id, callers in self._callers.items():
            for caller in callers[1:]:
                yield caller.path, f"The call id {call_id} is used again: the later call has another one."
        for call_id, results in self._results.items():
            with_result: set[int] = set()
            for result in results if len(results) > 1 else ():
                place = bisect_right(self._callers.get(call_id, ()), _place(result), key=_place)
                if place and place in with_result:
                    yield result.path, f"A second result of the call {call_id}: it is left out."
                with_result.add(place)

    # ---- What stands, in order

    def _bring_in(self, one: Standing) -> None:
        if one.message.role is _TOOL:
            insort(self._results.setdefault(one.message.call_id, []), one, key=_place)
            self._settle(one.message.call_id)
            return
        if one.is_gone or not _says_something(one.message):
            return
        self._insert(one)
        for call_id in _call_ids(one):
            insort(self._callers.setdefault(call_id, []), one, key=_place)
            if call_id in self._results or len(self._callers[call_id]) > 1:
                self._settle(call_id)

    def _take_out(self, one: Standing) -> None:
        if one.message.role is _TOOL:
            _drop(self._results, one.message.call_id, one)
            self._say(one, is_said=False)
            self._settle(one.message.call_id)
            return
        if one.is_gone or not _says_something(one.message):
            return
        self._remove(one)
        for call_id in _call_ids(one):
            _drop(self._callers, call_id, one)
            self._settle(call_id)

    def _settle(self, call_id: str) -> None:
        """Results or calls of an id have changed."""
        callers = self._callers.get(call_id, ())
        for caller in callers:
            self._touch(bisect_left(self._spine, _place(caller), key=_place))
        for result in self._results.get(call_id, ()):
            is_orphan = not callers or _place(result) < _place(callers[0])
            self._say(result, is_said=is_orphan and not result.is_gone)

    def _say(self, result: Standing, *, is_said: bool) -> None:
        """Have a result stand by itself, or not."""
        if before := self._orphans.pop(result.path, None):
            self._remove(before)
        if is_said and result.message.text:
            said = Standing(result.path, result.position, text_message(_USER, result.message.text))
            self._orphans[result.path] = said
            self._insert(said)

    def _insert(self, one: Standing) -> None:
        spine = self._spine
        if not spine or _place(spine[-1]) < _place(one):
            spine.append(one)
            self._touch(len(spine) - 1)
            return
        at = bisect_left(spine, _place(one), key=_place)
        spine.insert(at, one)
        self._touch(at)

    def _remove(self, one: Standing) -> None:
        at = bisect_left(self._spine, _place(one), key=_place)
        del self._spine[at]
        self._touch(at)

    def _touch(self, at: int) -> None:
        if self._fresh_from is None or at < self._fresh_from:
            self._fresh_from = at

    # ---- Segments

    def _segment(self, begin: int, before: Mapping[int, Segment]) -> Segment:
        """The segment from a place on; `before` are earlier ones by the identity of their first part."""
        first, end = self._spine[begin], begin + 1
        is_reply, ids = first.message.role is _ASSISTANT, self._ids_sent(first)
        if is_reply:
            parts: tuple[Standing | None, ...] = (first, *map(self._answer_of(first), first.message.calls))
        else:
            while end < len(self._spine) and self._spine[end].message.role is _USER:
                end += 1
            parts = tuple(self._spine[begin:end])
        kept = before.get(id(first))
        is_kept = kept is not None and kept.ids == ids and (begin == 0) == (kept.begin == 0)
        if kept and is_kept and _is_same(kept.parts, parts):
            pieces, chars = kept.pieces, kept.chars
        else:
            messages = _answered(first.message, ids, parts[1:]) if is_reply else [together(_messages(parts))]
            if is_reply and begin == 0:
                messages.insert(0, text_message(_USER, LEFT_OUT))
            pieces = tuple(piece for line in encoded(messages) for piece in self._pieces_of(line))
            chars = sum(map(len, pieces))
        return Segment(begin, end, len(self.pieces), parts, pieces, is_reply, chars, ids)

    def _answer_of(self, reply: Standing) -> Callable[[ToolCall], Standing | None]:
        """The first result behind a call, and before another reply that uses its id."""
        place = _place(reply)
        answered: set[str] = set()

        def answer(call: ToolCall) -> Standing | None:
            results = self._results.get(call.call_id)
            if not results or call.call_id in answered:
                return None
            answered.add(call.call_id)
            at = bisect_right(results, place, key=_place)
            callers = self._callers[call.call_id]
            after = bisect_right(callers, place, key=_place) if len(callers) > 1 else 1
            is_before = after == len(callers) or (at < len(results) and _place(results[at]) < _place(callers[after]))
            return results[at] if at < len(results) and is_before else None

        return answer

    def _ids_sent(self, reply: Standing) -> tuple[str, ...]:
        """The ids of its calls; those that calls before it have are changed."""
        ids: list[str] = []
        for call in reply.message.calls:
            call_id = call.call_id or f"call_{reply.position}_{call.index}"
            callers = self._callers[call.call_id]
            if len(callers) > 1 and (used := bisect_left(callers, _place(reply), key=_place)):
                call_id = f"{call_id}+{used + 1}"
            while call_id in ids:
                call_id += "+"
            ids.append(call_id)
        return tuple(ids)


def _answered(reply: Message, ids: Sequence[str], results: Sequence[Standing | None]) -> list[Message]:
    """A reply and the results of its calls, in their order."""
    calls = tuple(
        call if call.call_id == sent else replace(call, call_id=sent)
        for call, sent in zip(reply.calls, ids, strict=True)
    )
    message = reply if calls == reply.calls else replace(reply, calls=calls)
    return [message, *map(_result, calls, results)]


def _place(one: Standing) -> tuple[int, str]:
    return one.position, one.path


def _drop(listed: dict[str, list[Standing]], key: str, one: Standing) -> None:
    left = [other for other in listed[key] if other is not one]
    if left:
        listed[key] = left
    else:
        del listed[key]


def _call_ids(reply: Standing) -> Iterable[str]:
    calls = reply.message.calls
    return dict.fromkeys(call.call_id for call in calls) if len(calls) > 1 else [call.call_id for call in calls]


def _says_the_same(one: Standing, other: Standing) -> bool:
    return (one.position, one.is_gone) == (other.position, other.is_gone) and one.message == other.message


def _is_touched(segment: Segment, fresh: int) -> bool:
    """Whether a change of what stands from there on may change a segment: what users say goes on with more of it."""
    return segment.end > fresh or (segment.end == fresh and not segment.is_reply)


def _is_same(one: Sequence[Standing | None], other: Sequence[Standing | None]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _result(call: ToolCall, result: Standing | None) -> Message:
    if result is None:
        return Message(_TOOL, (Text(NO_RESULT),), call_id=call.call_id, tool=call.name, failed=True)
    message = result.message
    is_named = message.tool == call.name and message.call_id == call.call_id
    return message if is_named else replace(message, tool=call.name, call_id=call.call_id)


def _says_something(message: Message) -> bool:
    """Whether a message has content: vendors refuse empty ones, such as a reply that was stopped at once."""
    if message.role is _USER:
        return any(not isinstance(part, Text) or part.text for part in message.parts)
    told = (message.parts, message.calls, message.thinking, message.server_blocks, message.reasoning)
    return message.role is not _ASSISTANT or any(told)


def _messages(parts: Iterable[Standing | None]) -> list[Message]:
    return [part.message for part in parts if part]


def together(said: Sequence[Message]) -> Message:
    """What users say one after the other, as one message: texts joined by a blank line, images in their places."""
    if len(said) == 1 and len(said[0].parts) == 1:
        return said[0]
    parts: list[Part] = []
    for part in (part for message in said for part in message.parts):
        if isinstance(part, Text) and not part.text:
            continue
        last = parts[-1] if parts else None
        if isinstance(part, Text) and isinstance(last, Text):
            parts[-1] = Text(f"{last.text}\n\n{part.text}")
        else:
            parts.append(part)
    return replace(said[0], parts=tuple(parts))


def transcript(messages: Iterable[RunMessage], shown: Callable[[RunMessage], str]) -> list[Message]:
    """The messages to send. `shown` renders messages for which vendors have no role; empty: leave out."""
    made = Conversation()
    for message in messages:
        made.put(message.path, Standing(message.path, message.position, known(message, shown)))
    made.compose()
    return decoded("".join(made.pieces))


def encoded(messages: Iterable[Message]) -> list[str]:
    """The messages as JSON Lines."""
    return [_ENCODER.encode(message).decode() + "\n" for message in messages]


def decoded(text: str) -> list[Message]:
    """Inverse of `encoded`."""
    return [_DECODER.decode(line) for line in text.split("\n") if line]
