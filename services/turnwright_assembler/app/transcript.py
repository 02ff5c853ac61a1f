"""Assembling a turn as a transcript: the run's messages in order, so each turn begins with those of the turn before.

It is composed from the entries each time. If it does not fit, messages are evicted (domain.eviction). That is stored as
their visibility, so it can be undone, and later turns begin with the same messages.
Source: architecture 4; rows RL02, RL05, RL06, RL08, RL09, RH05; decisions C40-C44.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.condensed import condensed
from turnwright_assembler.domain.eviction import TARGET_SHARE, WeighedMessage, evict
from turnwright_assembler.domain.ladder import TokenBudget
from turnwright_assembler.ports import ViewPart
from turnwright_core.chat.run_message import MessageKind
from turnwright_core.chat.transcript import Segment, encoded
from turnwright_core.differences import Copied
from turnwright_core.entries import EntryWrite, SetEntry, Tier, Visibility
from turnwright_core.text import tokens_of


class Transcript(Struct, frozen=True):
    """What the model is sent: roles with their pieces, the moment that it shows, and the writes that go with it."""

    messages: tuple[tuple[str, tuple[Copied | str, ...]], ...]
    digest: str
    tokens: int
    chars: int
    segments: tuple[Segment, ...]
    effects: tuple[EntryWrite, ...] = ()
    overflow: bool = False


def fitting_transcript(rows: TranscriptRows, base_digest: str, divisor: int, budget: TokenBudget) -> Transcript:
    """The transcript of a run, with what gives way where it would not fit; that stays so, by its effects."""
    rows.messages()
    if not budget.excess(tokens_of(rows.chars, divisor)):
        return _made(rows, base_digest, divisor, budget)
    effects = _limited(rows, divisor, budget)
    before = [rows.entries[path] for path in effects]
    after = [replace(entry, visibility=effects[entry.path]) for entry in before]
    rows.apply(ViewPart(tuple(after), (), None))
    made = _made(rows, base_digest, divisor, budget)
    rows.apply(ViewPart(tuple(before), (), None))
    writes = (EntryWrite(path, SetEntry(visibility=shown), Tier.SYSTEM) for path, shown in effects.items())
    return replace(made, effects=tuple(writes))


def _made(rows: TranscriptRows, base_digest: str, divisor: int, budget: TokenBudget) -> Transcript:
    digest = rows.digest()
    tokens = tokens_of(rows.chars, divisor)
    segments = tuple(rows.conversation.segments())
    told, overflow = rows.as_delta(digest, base_digest), budget.excess(tokens) > 0
    return Transcript(told, digest, tokens, rows.chars, segments, overflow=overflow)


def _limited(rows: TranscriptRows, divisor: int, budget: TokenBudget) -> dict[str, Visibility]:
    """What gives way, by path: how it stands from then on."""
    tokens = tokens_of(rows.chars, divisor)
    wanted = budget.expected(tokens) - budget.ceiling * TARGET_SHARE
    weighed = [one for segment in rows.conversation.segments() for one in _weighed(segment, rows)]
    gives_way = evict(weighed, round(rows.chars * wanted / budget.expected(tokens)))
    return dict.fromkeys(gives_way.stubs, Visibility.SUMMARIZED) | dict.fromkeys(gives_way.dropped, Visibility.ARCHIVED)


def _weighed(segment: Segment, rows: TranscriptRows) -> Iterator[WeighedMessage]:
    """The messages of a segment as they stand in the transcript now."""
    paths = tuple(part.path for part in segment.parts[1:] if part) if segment.is_reply else ()
    for place, part in enumerate(segment.parts):
        if part is None:
            continue
        entry, kind = rows.entries[part.path], rows.kinds[part.path]
        chars, freed, read = len(encoded([part.message])[0]), 0, ""
        if kind is MessageKind.RESULT and entry.visibility is Visibility.VISIBLE:
            freed = max(0, len(part.message.text) - len(condensed(part.path, part.message.text)))
            read = str(entry.attributes.get("target") or "") if part.message.tool == "get" else ""
        yield WeighedMessage(part.path, kind, chars, freed, read, paths if not place else ())
