"""Eviction of messages from a transcript that does not fit: three stages, each only as far as needed.

| stage | evicted |
|---|---|
| 1 | results of reads whose path was read again later |
| 2 | results, oldest first, except those that the model has not replied to |
| 3 | replies with their results, and earlier messages to the model, oldest first |

An evicted result leaves a stub, so that its call still has an answer. The latest reply, the latest prompt with
everything after it, plans and events are never evicted. Source: rows RL05, RL06, RL08, RL09.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from turnwright_core.chat.run_message import MessageKind

TARGET_SHARE: Final = 0.7
"""Share of the budget in use after an eviction: each one breaks the prefix that vendors cache, so it must last."""

EXEMPT: Final = (MessageKind.EVENT, MessageKind.PLAN)
"""Never evicted (RL05)."""

_REPLIES: Final = (MessageKind.REPLY, MessageKind.SUMMARY)


class WeighedMessage(Struct, frozen=True):
    """A message of a transcript. `freed` are the code points that a stub in its place saves; 0: it is a stub."""

    path: str
    kind: MessageKind
    chars: int
    freed: int = 0
    read: str = ""
    """The path that a read has read."""
    results: tuple[str, ...] = ()
    """The paths of the results of a reply's calls."""


class Evicted(Struct, frozen=True):
    """Paths of the results that become stubs, and of the messages that are dropped."""

    stubs: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def evict(messages: Sequence[WeighedMessage], excess: int) -> Evicted:
    """Evict at least `excess` code points, or as many as possible."""
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
    return Evicted(tuple(path for path in stubs if path not in gone), tuple(dropped))


def _read_again(messages: Sequence[WeighedMessage]) -> Iterator[tuple[str, int]]:
    latest = {message.read: message.path for message in messages if message.read}
    for path, freed, read in _replied_to(messages):
        if read and latest[read] != path:
            yield path, freed


def _results(messages: Sequence[WeighedMessage]) -> Iterator[tuple[str, int]]:
    for path, freed, _ in _replied_to(messages):
        yield path, freed


def _replied_to(messages: Sequence[WeighedMessage]) -> Iterator[tuple[str, int, str]]:
    """Results that the model has replied to and that a stub would shorten."""
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
    """Index of the latest message of these kinds; 0 if there is none."""
    wanted = frozenset(kinds)
    return max((place for place, message in enumerate(messages) if message.kind in wanted), default=0)
