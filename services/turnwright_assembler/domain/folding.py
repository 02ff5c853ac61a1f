"""Folding: which events of a run leave the packet, and the marker that replaces them.

Each event stays in the log at its time, whatever the packet costs, with four exceptions:

    process_completed, cron_fire    the newest EVENTS_KEPT of each source stay
    mode_switch                     the newest one stays
    tick                            stays for TICK_TURNS turns: its own and those that follow

If the remaining events take more than a share of the packet together, the oldest are folded too, since no step of the
ladder demotes events.

Folded events are archived, not removed, by effects that the caller commits with the packet. The packet already reflects
these effects, so repeating the request gives the same bytes and no effects. A marker at the end of the log has the
count and the latest of them; the previous marker is archived, and its count included. An event that the model makes
visible again stays, as long as there is room for it. Source: RH03; decision C47; ADR 28, 32.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, TypeVar

from msgspec import Struct, field
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Entry, State, Visibility

from turnwright_assembler.domain.blocks import Block, make_block
from turnwright_assembler.domain.effects import writer_for
from turnwright_core.events import Subkind, event_path
from turnwright_core.json_text import JsonObject
from turnwright_core.text import free_path
from turnwright_core.value_methods import to_attributes_json

EVENTS_KEPT: Final = 3
"""Number of latest events of a source that stay, for subkinds that are folded."""

TICK_TURNS: Final = 3
"""Number of turns in whose packets a tick appears."""

SHARE: Final = 4
"""Events together may take one part in this many of a packet's ceiling."""

PATHS_NAMED_MAX: Final = 20
"""Maximum number of folded events that a marker names, the latest ones; the others are counted."""

PATHS_CHARS_MAX: Final = 2_000
"""Maximum total length of the paths that a marker names, in code points."""

MARKER: Final = Subkind.SUMMARIZATION_MARKER
SOURCE: Final = "assembler"
"""Source of our markers; markers of others are left alone."""

MODE_SWITCH: Final = Subkind.MODE_SWITCH.value
_RECENT: Final = frozenset({Subkind.PROCESS_COMPLETED.value, Subkind.CRON_FIRE.value})


E = TypeVar("E")


class Folded(Struct, frozen=True):
    """The blocks of a packet without the folded ones, and the writes that archive these."""

    blocks: tuple[Block, ...]
    writes: tuple[EntryWrite, ...]
    gone: frozenset[str]
    marker: Entry
    """The marker as it will be stored."""


class _Counted(Struct):
    """What markers count so far. Mutable: a sum."""

    subkinds: Counter[str] = field(default_factory=Counter)
    paths: list[str] = field(default_factory=list)


def fold(
    blocks: Callable[[], tuple[Block, ...]],
    fixed: Iterable[Block],
    turn: int,
    loop: int,
    ceiling: int,
    divisor: int,
    taken: Container[str],
) -> Folded | None:
    """Fold events that are too old, or too many, in the packet of a turn; None if there are none.

    `blocks` gives all of them in order; `fixed` are its plans and events, in order, `taken` paths that the run already
    sees.
    """
    events = [block for block in fixed if block.event]
    if not events:
        return None
    markers = [block for block in events if is_marker(block)]
    counted = _counted(markers)
    known = {*counted.paths, *(block.path for block in markers)}
    folding = _folding([block for block in events if block.path not in known], turn)
    folding += _over_share(_without([*folding, *markers], events), ceiling // SHARE)
    if not folding:
        return None
    for block in (one for one in _in_order(folding) if one.path not in known):
        counted.subkinds[_subkind(block)] += 1
        counted.paths.append(block.path)
    before = blocks()
    marker = _marker(counted, markers, turn, loop, before[-1].position + 1, taken)
    gone = [block.path for block in (*_in_order(folding), *markers) if block.path != marker.path]
    shown = make_block(marker, divisor)
    assert shown is not None, "a marker is an event"
    archived = SetEntry(visibility=Visibility.ARCHIVED)
    writer = writer_for("event")
    return Folded(
        blocks=tuple(_in_order((*_without([*folding, *markers], before), shown))),
        writes=(*(EntryWrite(path, archived, writer) for path in gone), _write(marker)),
        gone=frozenset(gone),
        marker=marker,
    )


def _in_order(blocks: Iterable[Block]) -> list[Block]:
    return sorted(blocks, key=lambda block: (block.position, block.path))


def _without(left_out: Iterable[Block], blocks: Iterable[Block]) -> list[Block]:
    paths = {block.path for block in left_out}
    return [block for block in blocks if block.path not in paths]


def _subkind(block: Block) -> str:
    return block.event.subkind if block.event else ""


def is_marker(block: Block) -> bool:
    event = block.event
    return event is not None and (event.subkind, event.source) == (MARKER.value, SOURCE)


def _folding(events: Iterable[Block], turn: int) -> list[Block]:
    facts = ((block, block.event.subkind, block.event.source, block.turn) for block in events if block.event)
    return outdated(facts, turn)


def outdated(events: Iterable[tuple[E, str, str, int]], turn: int) -> list[E]:
    """The events that are too old, of events with their subkinds, sources and turns."""
    groups: defaultdict[tuple[str, str], list[E]] = defaultdict(list)
    leaving: list[E] = []
    for event, subkind, source, event_turn in events:
        if subkind in _RECENT:
            groups[subkind, source].append(event)
        elif subkind == MODE_SWITCH:
            groups[subkind, ""].append(event)
        elif subkind == Subkind.TICK.value and event_turn <= turn - TICK_TURNS:
            leaving.append(event)
    for (subkind, _), group in groups.items():
        leaving += group[: -EVENTS_KEPT if subkind in _RECENT else -1]
    return leaving


def _over_share(events: Sequence[Block], room: int) -> list[Block]:
    """The oldest events, if all of them exceed their share.

    Half of the share is left then, so that not every packet folds again: a fold changes bytes that a vendor has cached.
    """
    tokens = sum(block.s_tokens for block in events)
    if tokens <= room:
        return []
    mode = next((block for block in reversed(events) if _subkind(block) == Subkind.MODE_SWITCH.value), None)
    leaving = []
    for block in events:
        if tokens > room // 2 and block is not mode:
            leaving.append(block)
            tokens -= block.s_tokens
    return leaving


def _counted(markers: Iterable[Block]) -> _Counted:
    """The counts in these markers, as far as they are valid."""
    counted = _Counted()
    for block in markers:
        payload = block.event.payload if block.event else None
        fields: JsonObject = payload if isinstance(payload, dict) else {}
        subkinds, paths = fields.get("subkinds"), fields.get("paths")
        if isinstance(subkinds, dict):
            counted.subkinds.update({str(name): n for name, n in subkinds.items() if type(n) is int and n > 0})
        if isinstance(paths, list):
            counted.paths += [path for path in paths if isinstance(path, str)]
    return counted


def _marker(
    counted: _Counted, markers: Sequence[Block], turn: int, loop: int, position: int, taken: Container[str]
) -> Entry:
    """The marker of a turn; an existing one of that turn is overwritten."""
    path = event_path(turn, MARKER, "folded")
    before = next((block for block in markers if block.path == path), None)
    subkinds = dict(sorted(counted.subkinds.items()))
    payload = {"count": sum(subkinds.values()), "subkinds": subkinds, "paths": _named(counted.paths)}
    return Entry(
        path=path if before else free_path(path, taken),
        scheme="event",
        scope="",
        body=f"{payload['count']} earlier events are archived.",
        body_size_bytes=0,
        attributes_json=to_attributes_json({"event": {"subkind": MARKER.value, "source": SOURCE, "payload": payload}}),
        visibility=Visibility.VISIBLE,
        state=State.RESOLVED,
        outcome="",
        writer=writer_for("event"),
        turn=turn,
        loop=loop,
        position=before.position if before else position,
        write_count=1,
        revision=0,
        hash="",
        update_ms=0,
    )


def _named(paths: Sequence[str]) -> list[str]:
    """The latest paths, as many as a marker may name."""
    named: list[str] = []
    room = PATHS_CHARS_MAX
    for path in reversed(paths[-PATHS_NAMED_MAX:]):
        room -= len(path)
        if room < 0:
            break
        named.append(path)
    return named[::-1]


def _write(marker: Entry) -> EntryWrite:
    change = SetEntry(
        body=marker.body,
        attributes_json=marker.attributes_json,
        visibility=Visibility.VISIBLE,
        state=State.RESOLVED,
    )
    return EntryWrite(marker.path, change, marker.writer, turn=marker.turn, loop=marker.loop)
