"""Explanations of packets: the pieces of a packet, and where it leaves the prefix of another packet.

The bytes are those of the stored packet; the pieces come from assembling it again. If both are equal, each piece
explains its bytes. If not, as after an upgrade, the pieces are searched for in the stored packet, and the text between
them is left unexplained. Source: architecture 4 (replay).
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import accumulate
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.chat.message import Text
from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.entries import Cursor
from turnwright_core.text import tokens_of

SEARCHED_CHARS: Final = 64 * 1024
"""Code points of a stored message in which the next piece is searched for."""

_COMPARED_BYTES: Final = 64 * 1024
_ORDER: Final = {"tools": 0, "system": 1}
"""Messages in the order in which vendors cache them; the others follow as they are."""


class Form(IntEnum):
    """How much of an entry is in a prompt. Numbers are those of types/v1/explanation.proto."""

    UNSPECIFIED = 0
    WHOLE = 1
    SUMMARIZED = 2
    """Condensed: an outline, a beginning, or both ends of it."""
    STUB = 3
    """A line that says how to read it again."""
    LEFT_OUT = 4


class PieceKind(IntEnum):
    """types/v1/explanation.proto."""

    UNSPECIFIED = 0
    SYSTEM = 1
    TOOL = 2
    PERSONA = 3
    PROJECT_INSTRUCTIONS = 4
    PROMPT = 5
    FILE = 6
    ENTRY = 7
    RECORD = 8
    EVENT = 9
    PLAN = 10
    UNKNOWN = 11
    INSTRUCTIONS = 12
    BUDGET = 13
    PLUGIN = 14
    MARKUP = 15
    REPLY = 16
    RESULT = 17
    SUMMARY = 18
    NOTICE = 19
    UNEXPLAINED = 20
    EDIT = 21


class Piece(Struct, frozen=True):
    """A piece of a message; where it stands is known when all are. `reduced_by` shortened it or left it out."""

    text: str
    kind: PieceKind
    section: str
    why: str
    path: str = ""
    form: Form = Form.WHOLE
    reduced_by: str = ""
    reduced_in_turn: int = 0
    whole_tokens: int = 0
    """What it would take if it were whole; 0: it is, or that is not known."""
    healed: str = ""
    """What vendors would refuse about it, and how it is sent instead."""
    begin: int = 0
    """In bytes of UTF-8, as `bytes`."""
    bytes: int = 0
    tokens: int = 0


class FittingStep(Struct, frozen=True):
    """A step by which a packet was made to fit, or events were folded."""

    name: str
    paths: tuple[str, ...]
    tokens: int = 0
    excess: int = 0


class PrefixBreak(Struct, frozen=True):
    """Where a packet leaves the prefix that it shares with that of an earlier turn, and the piece there, if any."""

    before_turn: int
    bytes: int
    tokens: int
    path: str = ""
    kind: PieceKind = PieceKind.UNSPECIFIED
    section: str = ""


class KindTotal(Struct, frozen=True):
    """The pieces of one kind."""

    kind: PieceKind
    pieces: int
    tokens: int


class Explanation(Struct, frozen=True):
    """What a packet consists of, and why."""

    tokens: int
    ceiling: int
    bytes: int
    digest: str
    stored_digest: str
    cursor: Cursor | None
    kinds: tuple[KindTotal, ...]
    steps: tuple[FittingStep, ...]
    prefix: PrefixBreak | None
    pieces: tuple[Piece, ...]
    gaps: tuple[str, ...]
    pieces_left_out: int = 0
    tokens_left_out: int = 0


Messages = Sequence[tuple[str, str]]
"""Roles and texts."""


MessageOfPieces = tuple[str, Sequence[Piece]]
"""A role, and the pieces of the message."""

C = TypeVar("C")


def texts_of(messages: Iterable[tuple[str, Sequence[object]]]) -> Messages:
    """The texts of messages in pieces; what is copied from other packets is left out."""
    return [(role, "".join([piece for piece in pieces if isinstance(piece, str)])) for role, pieces in messages]


def in_cached_order(messages: Iterable[tuple[str, C]]) -> list[tuple[str, C]]:
    """The messages in the order in which vendors cache them: tools, system, the others."""
    return sorted(messages, key=lambda message: _ORDER.get(message[0], len(_ORDER)))


def place(messages: Iterable[MessageOfPieces], divisor: int) -> tuple[Piece, ...]:
    """The pieces of messages at their places. Tokens of a message's pieces add up to its own."""
    placed: list[Piece] = []
    begin = 0
    for _, pieces in messages:
        chars = 0
        for piece in pieces:
            before, chars = tokens_of(chars, divisor), chars + len(piece.text)
            size = len(piece.text.encode())
            placed.append(replace(piece, begin=begin, bytes=size, tokens=tokens_of(chars, divisor) - before))
            begin += size
    return tuple(placed)


def all_aligned(sent: Messages, again: Sequence[MessageOfPieces]) -> list[MessageOfPieces]:
    """The messages that were sent, in the pieces of those that are assembled again."""
    left: defaultdict[str, deque[Sequence[Piece]]] = defaultdict(deque)
    for role, pieces in again:
        left[role].append(pieces)
    return [(role, aligned(text, left[role].popleft() if left[role] else (), role)) for role, text in sent]


def aligned(text: str, pieces: Iterable[Piece], role: str) -> list[Piece]:
    """The pieces that occur in a stored text, in its order, with what lies between them as unexplained pieces."""
    found: list[Piece] = []
    at = 0
    for piece in pieces:
        if piece.form is Form.LEFT_OUT:
            found.append(piece)
            continue
        begin = text.find(piece.text, at, at + SEARCHED_CHARS + len(piece.text)) if piece.text else -1
        if begin < 0:
            continue
        if begin > at:
            found.append(_unexplained(text[at:begin], role))
        found.append(piece)
        at = begin + len(piece.text)
    if at < len(text):
        found.append(_unexplained(text[at:], role))
    return found


def with_edits(
    texts: Messages, messages: Sequence[MessageOfPieces], edits: Sequence[PromptEdit]
) -> list[MessageOfPieces]:
    """The messages of a packet with edits: text besides the known pieces was added by edits."""
    return [(role, [_as_edit(piece, edits) for piece in pieces]) for role, pieces in all_aligned(texts, messages)]


def _as_edit(piece: Piece, edits: Sequence[PromptEdit]) -> Piece:
    if piece.kind is not PieceKind.UNEXPLAINED:
        return piece
    found = [
        f"edits[{index}] ({edit.verb.value}{f' of the plugin {edit.plugin}' if edit.plugin else ''})"
        for index, edit in enumerate(edits)
        if any(isinstance(part, Text) and _has(piece.text, part.text) for part in edit.parts)
    ]
    return Piece(piece.text, PieceKind.EDIT, piece.section, f"Added by {', '.join(found) or 'edits of the prompt'}.")


def _has(sent: str, text: str) -> bool:
    """Whether a text was sent, as it is or as a string of JSON."""
    return text in sent or json.dumps(text, ensure_ascii=False)[1:-1] in sent


def _unexplained(text: str, role: str) -> Piece:
    why = "It was sent; assembled again from the same moment, the packet does not contain it."
    return Piece(text, PieceKind.UNEXPLAINED, role, why)


def common_prefix(one: bytes, other: bytes) -> int:
    """Length of the common prefix, in bytes."""
    most = min(len(one), len(other))
    at = 0
    while at < most and one[at : at + _COMPARED_BYTES] == other[at : at + _COMPARED_BYTES]:
        at += _COMPARED_BYTES
    tail = zip(one[at : at + _COMPARED_BYTES], other[at : at + _COMPARED_BYTES], strict=False)
    return min(most, at + next((index for index, (left, right) in enumerate(tail) if left != right), _COMPARED_BYTES))


def prefix_break(before_turn: int, before: Messages, pieces: Sequence[Piece], divisor: int) -> PrefixBreak:
    """Where these pieces leave the packet of an earlier turn."""
    ours = "".join(one.text for one in pieces).encode()
    length = common_prefix(ours, "".join(text for _, text in in_cached_order(before)).encode())
    tokens = tokens_of(len(ours[:length].decode(errors="ignore")), divisor)
    at = next((one for one in pieces if one.begin + one.bytes > length), None)
    where = (at.path, at.kind, at.section) if at else ()
    return PrefixBreak(before_turn, length, tokens, *where)


def first_difference(sent: Messages, again: Sequence[MessageOfPieces]) -> str:
    """The first difference between a reassembled packet and the one that was sent: a path, else a section."""
    pieces = [piece for _, pieces in in_cached_order(again) for piece in pieces]
    texts = "".join(text for _, text in in_cached_order(sent))
    length = common_prefix(texts.encode(), "".join(piece.text for piece in pieces).encode())
    ends = accumulate(len(piece.text.encode()) for piece in pieces)
    at = next((piece for piece, end in zip(pieces, ends, strict=True) if end > length), None)
    if at:
        return at.path or f"<{at.section}>"
    return "its end" if length < len(texts.encode()) else "the borders of its messages"


def totals(pieces: Iterable[Piece]) -> tuple[KindTotal, ...]:
    """By kind, the one with the most tokens first."""
    tokens: defaultdict[PieceKind, list[int]] = defaultdict(list)
    for one in pieces:
        tokens[one.kind].append(one.tokens)
    found = (KindTotal(kind, len(each), sum(each)) for kind, each in tokens.items())
    return tuple(sorted(found, key=lambda total: (-total.tokens, total.kind)))


def with_largest(explained: Explanation, most: int) -> Explanation:
    """The explanation with only the largest pieces."""
    pieces = explained.pieces
    ranked = sorted(range(len(pieces)), key=lambda index: (-pieces[index].tokens, index))
    kept = tuple(pieces[index] for index in sorted(ranked[:most]))
    tokens = sum(pieces[index].tokens for index in ranked[most:])
    return replace(explained, pieces=kept, pieces_left_out=len(ranked[most:]), tokens_left_out=tokens)
