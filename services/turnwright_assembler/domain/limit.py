"""What of a transcript gives way where it does not fit: three stages, each only as far as it takes.

| stage | gives way |
|---|---|
| 1 | results of reads whose path was read again later |
| 2 | results, oldest first, but those that the model has not replied to |
| 3 | replies with their results, and earlier messages to the model, oldest first |

A result that gives way leaves a stub, so that its call still has an answer. The latest reply, the latest prompt with
what follows it, plans and events never go. Source: rows RL05, RL06, RL08, RL09.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from turnwright_core.chat.run_message import MessageKind

TARGET_SHARE: Final = 0.7
"""What is left after a limit, as a share of what fits: each limit breaks the prefix that vendors cache, so it has to be
worth it for many turns."""

EXEMPT: Final = (MessageKind.EVENT, MessageKind.PLAN)
"""What never goes (RL05)."""

_REPLIES: Final = (MessageKind.REPLY, MessageKind.SUMMARY)


class WeighedMessage(Struct, frozen=True):
    """A message of a transcript. `freed` are the code points that a stub in its place saves; 0: it is one already."""

    path: str
    kind: MessageKind
    chars: int
    freed: int = 0
    read: str = ""
    """Of the result of a read, what was read."""
    results: tuple[str, ...] = ()
    """Of a reply, the paths of the results of its calls."""


class Limited(Struct, frozen=True):
    """Paths of the results that become stubs, and of the messages that go."""

    stubs: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def limited(messages: Sequence[WeighedMessage], excess: int) -> Limited:
    """What gives way so that the messages have at least `excess` code points less, or as many as can go."""
    stubs: dict[str, int] = {}
    for path, freed in (*_read_again(messages), *_results(messages)):
        if excess <= 0:
            break
        if path not in stubs:
            stubs[path] = freed
            excess -= freed
    dropped: list[str] = []
    chars = {message.path: message.chars for message in messages}
    for paths in _droppable(messages):
        if excess <= 0:
            break
        dropped += paths
        excess -= sum(chars.get(path, 0) - stubs.get(path, 0) for path in paths)
    gone = frozenset(dropped)
    return Limited(tuple(path for path in stubs if path not in gone), tuple(dropped))


def _read_again(messages: Sequence[WeighedMessage]) -> Iterator[tuple[str, int]]:
    latest = {message.read: message.path for message in messages if message.read}
    for path, freed, read in _replied_to(messages):
        if read and latest[read] != path:
            yield path, freed


def _results(messages: Sequence[WeighedMessage]) -> Iterator[tuple[str, int]]:
    for path, freed, _ in _replied_to(messages):
        yield path, freed


def _replied_to(messages: Sequence[WeighedMessage]) -> Iterator[tuple[str, int, str]]:
    """The results that the model has replied to and of which a stub would save something."""
    for message in messages[: _latest(messages, _REPLIES)]:
        if message.kind is MessageKind.RESULT and message.freed > 0:
            yield message.path, message.freed, message.read


def _droppable(messages: Sequence[WeighedMessage]) -> Iterator[tuple[str, ...]]:
    """Replies with their results, and other messages, in their order."""
    prompt, reply = _latest(messages, (MessageKind.PROMPT,)), _latest(messages, _REPLIES)
    answered = {path for message in messages for path in message.results}
    for place, message in enumerate(messages[: max(prompt, reply)]):
        if message.kind in _REPLIES:
            if place < reply:
                yield (message.path, *message.results)
        elif message.kind not in EXEMPT and message.path not in answered and place < prompt:
            yield (message.path,)


def _latest(messages: Sequence[WeighedMessage], kinds: Iterable[MessageKind]) -> int:
    """Where the latest message of a kind stands; 0 where there is none."""
    wanted = frozenset(kinds)
    return max((place for place, message in enumerate(messages) if message.kind in wanted), default=0)
