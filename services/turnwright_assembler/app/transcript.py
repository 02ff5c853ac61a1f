"""A turn as a transcript: the run's messages in their order, of which each turn begins with those of the turn before.

If it does not fit, messages are evicted (domain.eviction). That is stored as their visibility, so it can be undone, and
later turns begin with the same messages. Until it is stored the rows stay as the store has them. Results that packets
summarized stand whole again, as far as they fit. If nothing makes it fit, nothing is evicted, and the report names what
takes most room.
Source: architecture 4; rows RL02, RL05-RL09, RH05; decisions C40-C44.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.assembler import AssembleRequest, UnfitPiece
from turnwright_values.store import EntryWrite
from turnwright_values.types import CompressionStrength, Entry, MessageKind, RequestKind, Visibility

from turnwright_assembler.app.packet import MessagesDelta
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.blocks import event_of
from turnwright_assembler.domain.compression import (
    overflow_write,
    report_write,
    summary_writes,
    visibility_writes,
)
from turnwright_assembler.domain.eviction import Evicted, Room, WeighedMessage, evict, replaced_by_summary, shrink
from turnwright_assembler.domain.ladder import TokenBudget
from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections.contract import text_of
from turnwright_core.chat.edited_conversation import edited_pieces
from turnwright_core.chat.message import Role, text_message
from turnwright_core.chat.timeline import turn_of
from turnwright_core.chat.transcript import PlacedMessage, Segment, to_json_lines
from turnwright_core.text import tokens_of

SHARES: Final = (1.0, 0.97, 0.9)
"""How much of what fits is filled: less, where messages that are sent as one take more room than was counted."""

SUMMARIZED_MAX: Final = 2000
"""Most messages that one summary replaces: its reply lists them."""

_REQUEST: Final = text_of("compaction-request")
_REQUEST_PATH: Final = "compaction://request"

UNFIT_MAX: Final = 10
"""Maximum number of pieces that are named of what cannot be evicted."""


class Transcript(Struct, frozen=True):
    """What a model is sent: roles with their pieces, and what is to be written with it."""

    messages: MessagesDelta
    digest: str
    tokens: int
    chars: int
    strength: CompressionStrength
    segments: tuple[Segment, ...]
    """What the conversation consists of, without edits."""
    effects: tuple[EntryWrite, ...] = ()
    evicted: Evicted | None = None
    """What was evicted in this turn, if anything was."""
    restored: tuple[str, ...] = ()
    """Results that stand whole again, which packets had summarized."""
    unfit: tuple[UnfitPiece, ...] = ()
    """What takes most room where it does not fit: then nothing else is sent."""
    edit_tokens: int = 0
    """Tokens of the edits; not part of `tokens`."""
    after_reply: tuple[EntryWrite, ...] = ()
    """The writes by which the reply, a summary, replaces messages."""
    replaced_chars: int = 0
    """Code points of those messages."""


def fitting_transcript(
    rows: TranscriptRows, ask: AssembleRequest, divisor: int, budget: TokenBudget, *, is_draft: bool = False
) -> Transcript:
    """The transcript of a run, after eviction if it would not fit, with the writes that make that last.

    Edits are applied to what is left; `budget` is the room beside them. A draft is not sent, and has none.
    Raises PROMPT_MESSAGE_UNKNOWN, PROMPT_TARGET_MISSING, PROMPT_SHAPE_REFUSED.
    """
    make = partial(_made, rows, ask, divisor, is_draft=is_draft)
    before = rows.condensed_by_packets()
    if not before:
        return _fitting(rows, ask, divisor, budget, make)
    # A transcript evicts by itself, and no prefix is lost: the turn before was sent as a packet.
    rows.apply(ViewPart(tuple(replace(entry, visibility=Visibility.VISIBLE) for entry in before), (), None))
    try:
        transcript = _fitting(rows, ask, divisor, budget, make)
    finally:
        rows.apply(ViewPart(tuple(before), (), None))
    if transcript.unfit:
        return transcript
    evicted = transcript.evicted.stage_of if transcript.evicted else {}
    restored = tuple(entry.path for entry in before if entry.path not in evicted)
    return replace(
        transcript,
        effects=(*visibility_writes(dict.fromkeys(restored, Visibility.VISIBLE)), *transcript.effects),
        restored=restored,
    )


def _fitting(
    rows: TranscriptRows, ask: AssembleRequest, divisor: int, budget: TokenBudget, make: Callable[[], Transcript]
) -> Transcript:
    if ask.kind is RequestKind.COMPACTION:
        return _compaction(rows, ask, divisor, budget, make)
    room = _room(rows, ask, divisor, budget)
    before = tokens_of(rows.chars, divisor)
    if rows.conversation.chars <= room.chars - room.kept_free:
        return make()
    weighed = _all_weighed(rows)
    evicted = Evicted(0)
    for share in SHARES:
        evicted = evict(weighed, replace(room, chars=int(room.chars * share)))
        if not evicted.stage_of and not budget.excess(before):
            return make()
        made = _after_eviction(rows, evicted, make)
        if not budget.excess(made.tokens):
            tokens = (budget.expected(before), budget.expected(made.tokens))
            report = report_write(evicted, ask.turn, ask.loop, *tokens, budget.ceiling)
            return replace(made, effects=(*visibility_writes(evicted.shown), report), evicted=evicted)
    unfit = tuple(_unfit(weighed, evicted, rows, divisor, budget))
    error = overflow_write(unfit, ask.turn, ask.loop, budget.expected(before), budget.ceiling, rows.entries)
    return replace(make(), effects=(error,), unfit=unfit)


def needs_summary(rows: TranscriptRows, ask: AssembleRequest, divisor: int, budget: TokenBudget) -> bool:
    """Whether replies would be left out of the transcript, which a summary could replace."""
    room = _room(rows, ask, divisor, budget)
    if rows.conversation.chars <= room.chars:
        return False
    dropped = evict(_all_weighed(rows), room).dropped
    return any(rows.kinds[path] is MessageKind.REPLY for path in dropped)


def _compaction(
    rows: TranscriptRows, ask: AssembleRequest, divisor: int, budget: TokenBudget, make: Callable[[], Transcript]
) -> Transcript:
    """The transcript with the request to summarize it at its end. The rows are left as they were."""
    room, weighed = _room(rows, ask, divisor, budget), _all_weighed(rows)
    replaced, short = replaced_by_summary(weighed, room)
    request = PlacedMessage(_REQUEST_PATH, sys.maxsize, text_message(Role.USER, _REQUEST))
    rows.conversation.put(_REQUEST_PATH, request)
    left = replace(room, chars=max(0, room.chars - 2 * len(_REQUEST)))
    try:
        shrunk = shrink(weighed, left)
        made = _after_eviction(rows, shrunk, make)
    finally:
        rows.conversation.put(_REQUEST_PATH, None)
    replaced = replaced[:SUMMARIZED_MAX]
    after = summary_writes(replaced, short, ask.turn, ask.loop)
    chars = {message.path: message.chars for message in weighed}
    return replace(made, after_reply=after, replaced_chars=sum(chars[path] for path in replaced), evicted=shrunk)


def _room(rows: TranscriptRows, ask: AssembleRequest, divisor: int, budget: TokenBudget) -> Room:
    rows.messages()
    fits = rows.chars * budget.ceiling // max(1, budget.expected(tokens_of(rows.chars, divisor)))
    return Room(max(0, fits - rows.fixed_chars), ask.turn, rows.broken_in)


def _all_weighed(rows: TranscriptRows) -> list[WeighedMessage]:
    return [one for segment in rows.conversation.segments() for one in _weighed(segment, rows)]


def _after_eviction(rows: TranscriptRows, evicted: Evicted, make: Callable[[], Transcript]) -> Transcript:
    """The transcript after this eviction. The rows are left as they were."""
    shown = evicted.shown
    before = tuple(rows.entries[path] for path in shown)
    rows.apply(ViewPart(tuple(replace(entry, visibility=shown[entry.path]) for entry in before), (), None))
    try:
        made = make()
    finally:
        rows.apply(ViewPart(before, (), None))
    return replace(made, strength=max(made.strength, evicted.strength))


def _made(rows: TranscriptRows, ask: AssembleRequest, divisor: int, *, is_draft: bool) -> Transcript:
    segments = tuple(rows.conversation.segments())
    messages, digest = rows.as_delta(ask.base_digest) if not (is_draft or ask.edits) else ((), "")
    made = Transcript(messages, digest, tokens_of(rows.chars, divisor), rows.chars, rows.strength, segments)
    return _edited(rows, ask, made, divisor) if ask.edits and not is_draft else made


def _edited(rows: TranscriptRows, ask: AssembleRequest, made: Transcript, divisor: int) -> Transcript:
    pieces = edited_pieces(rows.conversation, rows.speaker, ask.edits, prefill=ask.prefill)
    messages, digest = rows.as_delta(ask.base_digest, pieces)
    chars = made.chars - rows.conversation.chars + sum(map(len, pieces))
    return replace(
        made,
        messages=messages,
        digest=digest,
        chars=chars,
        edit_tokens=max(0, tokens_of(chars, divisor) - made.tokens),
    )


def _weighed(segment: Segment, rows: TranscriptRows) -> Iterator[WeighedMessage]:
    """The messages of a segment as they stand in the transcript now."""
    paths = tuple(part.path for part in segment.parts[1:] if part) if segment.is_reply else ()
    for index, part in enumerate(segment.parts):
        if part is None:
            continue
        entry, kind = rows.entries[part.path], rows.kinds[part.path]
        chars = len(to_json_lines([part.message])[0])
        weighed = WeighedMessage(part.path, kind, chars, turn_of(entry), results=() if index else paths)
        if kind is MessageKind.EVENT and (event := event_of(entry)):
            weighed = replace(weighed, subkind=event.subkind, source=event.source)
        elif kind is MessageKind.RESULT and entry.visibility is Visibility.VISIBLE and segment.is_reply:
            freed = max(0, chars - rows.chars_as(part.path, Visibility.SUMMARIZED))
            read, lines = _read(entry) if part.message.tool == "get" else ("", (1, inf))
            weighed = replace(weighed, freed=freed, read=read, lines=lines)
        yield weighed


def _read(entry: Entry) -> tuple[str, tuple[float, float]]:
    """What a read has read: the path, with the first and the last line."""
    attributes = entry.attributes
    first, last = attributes.get("first"), attributes.get("last")
    lines = (float(first), float(last)) if isinstance(first, int) and isinstance(last, int) else (1, inf)
    return str(attributes.get("target") or ""), lines


def _unfit(
    weighed: Sequence[WeighedMessage], evicted: Evicted, rows: TranscriptRows, divisor: int, budget: TokenBudget
) -> Iterator[UnfitPiece]:
    """What is left after eviction, largest first."""
    system, tools = rows.system_chars
    left = [(one.path, one.chars - evicted.condensed.get(one.path, 0)) for one in weighed]
    left = [(path, chars) for path, chars in left if path not in evicted.dropped]
    for path, chars in sorted([("system", system), ("tools", tools), *left], key=lambda one: -one[1])[:UNFIT_MAX]:
        if chars:
            yield UnfitPiece(path, budget.expected(tokens_of(chars, divisor)))
