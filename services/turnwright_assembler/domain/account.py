"""Token accounting of a packet, by the parts that the model can influence.

    floor       all entries if everything were summarized; plans and events stay whole
    premium     the extra tokens of visible entries, which the model controls
    overhead    everything else: the system message, the instructions, the tags of the sections, the budget itself

Usage is measured on the text that is sent, and usage = floor + premium + overhead.
Source: RU206-RU211; decisions C15, C24.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.domain.fixed import FIXED_SCHEMES


class SchemeLine(Struct, frozen=True):
    """The visible entries of one scheme, and the tokens that demoting all of them would free."""

    scheme: str
    visible: int
    tokens: int


class Account(Struct, frozen=True):
    """The token account of a packet's entries."""

    floor: int
    premium: int
    lines: tuple[SchemeLine, ...]
    """Largest first."""
    visible: int
    summarized: int
    summarized_tokens: int
    fixed: tuple[SchemeLine, ...] = ()
    """Plans and events, which cannot be demoted, with their tokens."""

    def overhead(self, usage: int) -> int:
        """Tokens of a packet that belong to no entry."""
        return usage - self.floor - self.premium


class EntryCounts:
    """The sums of an account, updated with each added or removed block. Mutable."""

    def __init__(self) -> None:
        self._floor = 0
        self._visible: dict[str, list[int]] = {}
        """By scheme: number of entries, and their tokens."""
        self._fixed: dict[str, list[int]] = {"plan": [0, 0], "event": [0, 0]}
        self._summarized = [0, 0]

    def add(self, block: Block) -> None:
        self._count(block, 1)

    def remove(self, block: Block) -> None:
        self._count(block, -1)

    def _count(self, block: Block, by: int) -> None:
        self._floor += by * block.s_tokens
        counted, tokens = self._summarized, block.s_tokens
        if block.scheme in FIXED_SCHEMES:
            # An entry with a single form frees nothing, and counts with all its tokens.
            counted = self._fixed[block.scheme]
        elif block.is_visible:
            counted, tokens = self._visible.setdefault(block.scheme or "file", [0, 0]), block.a_tokens
        counted[0] += by
        counted[1] += by * tokens

    def account(self) -> Account:
        lines = _lines(self._visible)
        lines.sort(key=lambda line: (-line.tokens, line.scheme))
        return Account(
            floor=self._floor,
            premium=sum(line.tokens for line in lines),
            lines=tuple(lines),
            visible=sum(line.visible for line in lines),
            summarized=self._summarized[0],
            summarized_tokens=self._summarized[1],
            fixed=tuple(_lines(self._fixed)),
        )


def _lines(by_scheme: Mapping[str, list[int]]) -> list[SchemeLine]:
    return [SchemeLine(scheme, visible, tokens) for scheme, (visible, tokens) in by_scheme.items() if visible]
