"""Eviction of messages from a transcript that does not fit: stages in order, each only as far as needed.

| stage | evicted | how |
|---|---|---|
| `duplicates` | results of reads that a later read covers | both ends are kept |
| `results` | results that the model has replied to, oldest first | both ends are kept |
| `history` | events that are too old; replies with their results, and what was said before, oldest first | left out |
| `unread` | results that the model has not read yet, largest first | both ends are kept |
| `history` | at last what the runtime wrote: summaries, notices, results without a call, oldest first | left out |

Calls and results stay pairs in every stage; that is not decided here (core, chat.transcript). The system message, the
latest reply and prompt, and plans are never evicted, events only as in row RH03.

The first three stages change what was sent before, so they break the prefix that vendors cache. So they free as much as
ten turns like the latest ones will take, and until ten turns have passed they are the last resort: results that the
model has not read were not sent yet, and are evicted first. All of it depends on stored entries only, so that a turn
that is assembled again is the same. Source: rows RL05-RL09, RH03.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Final

from msgspec import Struct, field
from turnwright_values.types import CompressionStrength, MessageKind, Visibility

from turnwright_assembler.domain.folding import MODE_SWITCH, SHARE, outdated

TURNS_BETWEEN: Final = 10
"""Turns that pass after the prefix was broken until it is broken again, if at all possible."""

TARGET_SHARE: Final = 0.7
"""Most that is left when the prefix is broken, as a share of the room beside what never goes."""

LEAST_SHARE: Final = 0.3
"""What is left at least, whatever the latest turns took."""

TURN_SHARE: Final = 0.015
"""What is kept free for each of the turns that are to pass, as a share of what fits."""

GIANT_SHARE: Final = 0.5
"""An unread result that takes more than this share of what fits is evicted first."""

RANGES_MAX: Final = 64
"""Most ranges of lines of a file that are compared with earlier ones."""

DUPLICATES: Final = "duplicates"
RESULTS: Final = "results"
HISTORY: Final = "history"
UNREAD: Final = "unread"

_REPLIES: Final = (MessageKind.REPLY,)
_LEFT_OUT: Final = (MessageKind.PROMPT, MessageKind.STEERING, MessageKind.SYNTHETIC, MessageKind.RESULT)
"""What is left out by itself; results only where no reply has called for them."""


_OF_RUNTIME: Final = (MessageKind.SUMMARY, MessageKind.SYNTHETIC, MessageKind.RESULT)


class WeighedMessage(Struct, frozen=True):
    """A message of a transcript. `freed` are the code points that condensing it saves; 0: it is condensed already."""

    path: str
    kind: MessageKind
    chars: int
    turn: int = 0
    freed: int = 0
    read: str = ""
    """Of the result of a read, what was read."""
    lines: tuple[float, float] = (1, inf)
    """The first and the last line that was read."""
    results: tuple[str, ...] = ()
    """Of a reply, the paths of the results of its calls."""
    subkind: str = ""
    """Of an event, with its source."""
    source: str = ""


class Room(Struct, frozen=True):
    """How many code points messages may take in a turn, and in which turn the prefix was broken last; 0: in none."""

    chars: int
    turn: int
    broken_in: int = 0

    @property
    def turns_left(self) -> int:
        """How many turns are to pass until the prefix may be broken again."""
        return max(0, self.broken_in + TURNS_BETWEEN - self.turn) if self.broken_in else 0

    @property
    def kept_free(self) -> int:
        """What those turns are to have."""
        return int(self.chars * TURN_SHARE * self.turns_left)


class Evicted(Struct):
    """The evicted messages, condensed or left out, with the stage of each. Mutable while it is decided."""

    chars: int
    """What messages take then."""
    stage_of: dict[str, str] = field(default_factory=dict)
    """By path."""
    condensed: dict[str, int] = field(default_factory=dict)
    """Paths, with the code points that it saves."""
    dropped: dict[str, None] = field(default_factory=dict)
    strength: CompressionStrength = CompressionStrength.ABSENT

    @property
    def stages(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path, stage in self.stage_of.items():
            found.setdefault(stage, []).append(path)
        return found

    @property
    def shown(self) -> dict[str, Visibility]:
        """How they are shown from now on, by path."""
        return dict.fromkeys(self.condensed, Visibility.SUMMARIZED) | dict.fromkeys(self.dropped, Visibility.ARCHIVED)

    @property
    def breaks_prefix(self) -> bool:
        """Whether it changes what was sent before."""
        return any(stage != UNREAD for stage in self.stage_of.values())

    def condense(
        self, stage: str, messages: Iterable[WeighedMessage], until: float, strength: CompressionStrength
    ) -> None:
        """Condense messages in their order, until no more is taken than that."""
        for message in messages:
            if self.chars <= until:
                return
            if message.path not in self.condensed and message.freed > 0:
                self.condensed[message.path] = message.freed
                self.chars -= message.freed
                self.stage_of[message.path] = stage
                self.strength = max(self.strength, strength)

    def drop(self, groups: Iterable[tuple[Sequence[WeighedMessage], CompressionStrength]], until: float) -> None:
        """Leave out groups of messages in their order, until no more is taken than that."""
        for messages, strength in groups:
            if self.chars <= until:
                return
            for message in messages:
                if message.path not in self.dropped:
                    self.dropped[message.path] = None
                    self.chars -= message.chars - self.condensed.pop(message.path, 0)
                    self.stage_of[message.path] = HISTORY
                    self.strength = max(self.strength, strength)


Droppable = tuple[Sequence[WeighedMessage], CompressionStrength]
"""Messages that are left out together, and how strong a compression that is."""


def evict(messages: Sequence[WeighedMessage], room: Room) -> Evicted:
    """Evict until the messages fit into the room, or as much as possible."""
    evicted = Evicted(sum(message.chars for message in messages))
    unread = sorted(messages[_latest(messages, _REPLIES) + 1 :], key=lambda message: -message.freed)
    if room.turns_left:
        evicted.condense(UNREAD, unread, room.chars - room.kept_free, CompressionStrength.HIGH)
    else:
        giants = (message for message in unread if message.chars > GIANT_SHARE * room.chars)
        evicted.condense(UNREAD, giants, room.chars, CompressionStrength.HIGH)
    if evicted.chars <= room.chars:
        return evicted
    droppable = list(_droppable(messages, room))
    target = min(room.chars, _target(messages, droppable, room))
    evicted.condense(DUPLICATES, _covered(messages), target, CompressionStrength.LOW)
    evicted.condense(RESULTS, _replied_to(messages), target, CompressionStrength.LOW)
    evicted.drop(droppable, target)
    evicted.condense(UNREAD, unread, room.chars, CompressionStrength.HIGH)
    evicted.drop(_by_runtime(messages), room.chars)
    return evicted


def replaced_by_summary(messages: Sequence[WeighedMessage], room: Room) -> tuple[list[str], list[str]]:
    """The messages that a summary replaces, and the results that are condensed with it.

    Those that would be left out now, or else all that may be; no events.
    """
    evicted = evict(messages, room)
    dropped = evicted.dropped
    droppable = [message for group, _ in _droppable(messages, room) for message in group]
    earlier = [message for message in messages if message.kind is MessageKind.SUMMARY]
    listed = [message for message in droppable if message.path in dropped] or droppable
    replaced = [message.path for message in (*earlier, *listed) if message.kind is not MessageKind.EVENT]
    return replaced, [path for path in evicted.condensed if path not in set(replaced)]


def shrink(messages: Sequence[WeighedMessage], room: Room) -> Evicted:
    """Fit everything that a summary should know into the room: results are condensed before anything is left out."""
    shrunk = Evicted(sum(message.chars for message in messages))
    results = [message for message in messages if message.kind is MessageKind.RESULT]
    shrunk.condense(RESULTS, results, room.chars, CompressionStrength.LOW)
    shrunk.drop(_droppable(messages, room), room.chars)
    shrunk.drop(_by_runtime(messages), room.chars)
    return shrunk


def _target(messages: Sequence[WeighedMessage], droppable: Sequence[Droppable], room: Room) -> float:
    """What is to be left: so much that as many turns as are to pass fit, if they take what the latest ones took.

    The shares are of the room beside what never goes.
    """
    movable = {message.path: message.chars for group, _ in droppable for message in group}
    fixed = sum(message.chars for message in messages) - sum(movable.values())
    free = max(0, room.chars - fixed)
    taken: dict[int, int] = {}
    for message in messages:
        if message.kind in (*_REPLIES, MessageKind.RESULT):
            taken[message.turn] = taken.get(message.turn, 0) + message.chars
    latest = [chars for _, chars in sorted(taken.items())[-TURNS_BETWEEN:]]
    growth = sum(latest) / max(1, len(latest))
    return fixed + min(max(free - TURNS_BETWEEN * growth, LEAST_SHARE * free), TARGET_SHARE * free)


def _covered(messages: Sequence[WeighedMessage]) -> list[WeighedMessage]:
    """Results of reads of which a later one has all lines."""
    later: dict[str, list[tuple[float, float]]] = {}
    covered = []
    reply = _latest(messages, _REPLIES)
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not message.read:
            continue
        first, last = message.lines
        ranges = later.setdefault(message.read, [])
        if not any(begin <= first and last <= end for begin, end in ranges):
            ranges[RANGES_MAX - 1 :] = [message.lines]
        elif index < reply:
            covered.append(message)
    return covered[::-1]


def _replied_to(messages: Sequence[WeighedMessage]) -> Iterator[WeighedMessage]:
    before = messages[: _latest(messages, _REPLIES)]
    return (message for message in before if message.kind is MessageKind.RESULT)


def _droppable(messages: Sequence[WeighedMessage], room: Room) -> Iterator[Droppable]:
    """What may be left out: events that are too old or too many, then replies with their results and what was said."""
    for event in _foldable(messages, room):
        yield (event,), CompressionStrength.MEDIUM
    prompt, reply = _latest(messages, (MessageKind.PROMPT,)), _latest(messages, _REPLIES)
    by_path = {message.path: message for message in messages}
    answered = {path for message in messages for path in message.results}
    for index, message in enumerate(messages):
        if message.kind is MessageKind.REPLY and index < reply:
            yield (message, *(by_path[path] for path in message.results)), CompressionStrength.MEDIUM
        elif index < prompt and message.kind in _LEFT_OUT and message.path not in answered:
            is_from_user = message.kind in (MessageKind.PROMPT, MessageKind.STEERING)
            yield (message,), CompressionStrength.HIGH if is_from_user else CompressionStrength.MEDIUM


def _by_runtime(messages: Sequence[WeighedMessage]) -> Iterator[Droppable]:
    """What the runtime wrote, wherever it stands: it never keeps a chat from going on. RL08."""
    answered = {path for message in messages for path in message.results}
    for message in messages:
        if message.kind in _OF_RUNTIME and message.path not in answered:
            yield (message,), CompressionStrength.HIGH


def _foldable(messages: Sequence[WeighedMessage], room: Room) -> Iterator[WeighedMessage]:
    events = [message for message in messages if message.kind is MessageKind.EVENT]
    folding = outdated(((event, event.subkind, event.source, event.turn) for event in events), room.turn)
    yield from folding
    gone = {event.path for event in folding}
    left = [event for event in events if event.path not in gone]
    taken = sum(event.chars for event in left)
    if taken <= room.chars / SHARE:
        return
    mode = next((event for event in reversed(left) if event.subkind == MODE_SWITCH), None)
    for event in left:
        if taken > room.chars / SHARE / 2 and event is not mode:
            taken -= event.chars
            yield event


def _latest(messages: Sequence[WeighedMessage], kinds: Iterable[MessageKind]) -> int:
    """Where the latest message of a kind stands; -1 where there is none."""
    wanted = frozenset(kinds)
    return max((index for index, message in enumerate(messages) if message.kind in wanted), default=-1)
