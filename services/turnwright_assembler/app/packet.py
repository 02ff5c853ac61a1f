"""One packet: the sections joined, and the figures settled that are part of what they count.

`tokenUsage` stands in the text whose tokens it gives. It is raised until the text takes no more than it says; where
the last rise made another figure shorter, spaces at the end of the budget make up for it. So the figures are true to
the token, and the same input gives the same bytes.
Source: RU180, RU183, RU208; decisions C15, C23.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from turnwright_assembler.domain.account import account_for
from turnwright_assembler.domain.blocks import Block, Figures, active_prompt
from turnwright_assembler.sections import SECTIONS, Draft
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.text import count_tokens, tokens_of

PIECE_CHARS_MAX: Final = (CHUNK_BYTES - 64) // 4
"""Code points of a piece: four bytes each at most, so that one fits into a part of an answer whatever its text."""


@dataclass(frozen=True, slots=True)
class Packet:
    """What a model reads: the two messages in pieces, and what they cost."""

    system: str
    pieces: tuple[str, ...]
    """Of the user message."""
    figures: Figures
    prompt: Block | None

    @property
    def user(self) -> str:
        """The user message."""
        return "".join(self.pieces)

    @property
    def messages(self) -> tuple[tuple[str, Sequence[str]], ...]:
        """Roles, each with the pieces of its message, none longer than PIECE_CHARS_MAX."""
        return (("system", _short((self.system,))), ("user", _short(self.pieces)))

    @property
    def chars(self) -> int:
        """Code points of both messages."""
        return len(self.system) + sum(map(len, self.pieces))

    @property
    def tokens(self) -> int:
        """Estimated tokens of both messages."""
        return self.figures.usage

    def digest(self) -> str:
        """SHA-256 over roles, lengths and texts, in hexadecimal."""
        digest = sha256()
        for role, text in (("system", self.system), ("user", self.user)):
            content = text.encode()
            digest.update(f"{role}:{len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()


def _short(pieces: Sequence[str]) -> Sequence[str]:
    if all(len(piece) <= PIECE_CHARS_MAX for piece in pieces):
        return pieces
    return [
        piece[begin : begin + PIECE_CHARS_MAX] for piece in pieces for begin in range(0, len(piece), PIECE_CHARS_MAX)
    ]


def compose(blocks: tuple[Block, ...], system: str, loop: int, ceiling: int, divisor: int) -> Packet:
    """The packet of a loop's next turn, from blocks in their order."""
    draft = Draft(
        blocks=blocks,
        prompt=active_prompt(blocks, loop),
        account=account_for(blocks),
        system_tokens=count_tokens(system, divisor),
        ceiling=ceiling,
    )
    fixed = [None if section.is_live else section.render(draft) for section in SECTIONS]
    draft = _settled(draft, fixed, divisor)
    return Packet(system, tuple(_pieces(draft, fixed)), draft.figures, draft.prompt)


def _pieces(draft: Draft, fixed: Sequence[Sequence[str] | None]) -> list[str]:
    """The pieces of all sections; live ones are rendered from this draft. Nothing ends the last one."""
    pieces: list[str] = []
    for section, rendered in zip(SECTIONS, fixed, strict=True):
        pieces += section.render(draft) if rendered is None else rendered
    pieces[-1] = pieces[-1].removesuffix("\n")
    return pieces


def _live_chars(draft: Draft) -> int:
    """Code points of the live sections, without the newline at the end of the last one."""
    return sum(len(piece) for section in SECTIONS if section.is_live for piece in section.render(draft)) - 1


def _settled(draft: Draft, fixed: Sequence[Sequence[str] | None], divisor: int) -> Draft:
    """The draft with figures that its own text bears out."""
    still = sum(len(piece) for pieces in fixed if pieces for piece in pieces)
    usage = 0
    while True:
        draft = replace(draft, figures=Figures(usage, max(0, draft.ceiling - usage)))
        chars = still + _live_chars(draft)
        needed = draft.system_tokens + tokens_of(chars, divisor)
        if needed <= usage:
            break
        usage = needed
    if needed < usage:
        draft = replace(draft, filler=" " * ((usage - draft.system_tokens) * divisor - chars))
    return draft
