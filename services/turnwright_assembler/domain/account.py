"""What a packet costs, by the parts that the model can act on.

    floor       what all entries cost when every one of them is summarized that can be: plans and events stay whole
    premium     what is paid on top for those that are visible: the model's lever
    overhead    everything else: the system message, the instructions, the tags of the sections, the budget itself

Usage is measured on the text that is sent, and usage = floor + premium + overhead.
Source: RU206-RU211; decisions C15, C24.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from turnwright_assembler.domain.blocks import Block
from turnwright_core.entries import Visibility


class SchemeLine(Struct, frozen=True):
    """The visible entries of one scheme, and the tokens that demoting all of them frees."""

    scheme: str
    visible: int
    tokens: int


class Account(Struct, frozen=True):
    """The entries of a packet, counted."""

    floor: int
    premium: int
    lines: tuple[SchemeLine, ...]
    """Largest first."""
    visible: int
    summarized: int
    summarized_tokens: int
    fixed: tuple[SchemeLine, ...] = ()
    """Plans and events, which cannot be demoted, with the tokens that they take."""

    def overhead(self, usage: int) -> int:
        """Tokens of a packet that belong to no entry."""
        return usage - self.floor - self.premium


def account_for(blocks: Sequence[Block]) -> Account:
    """Count the entries of a packet."""
    by_scheme: defaultdict[str, list[int]] = defaultdict(list)
    hidden: list[int] = []
    floor = 0
    for block in blocks:
        floor += block.s_tokens
        if block.visibility is Visibility.VISIBLE:
            # What has one form frees nothing, and counts with all that it takes.
            by_scheme[block.scheme or "file"].append(block.a_tokens if block.condensed else block.s_tokens)
        else:
            hidden.append(block.s_tokens)
    fixed = {scheme: by_scheme.pop(scheme) for scheme in ("plan", "event") if scheme in by_scheme}
    lines = _lines(by_scheme)
    lines.sort(key=lambda line: (-line.tokens, line.scheme))
    return Account(
        floor=floor,
        premium=sum(line.tokens for line in lines),
        lines=tuple(lines),
        visible=sum(line.visible for line in lines),
        summarized=len(hidden),
        summarized_tokens=sum(hidden),
        fixed=tuple(_lines(fixed)),
    )


def _lines(by_scheme: Mapping[str, Sequence[int]]) -> list[SchemeLine]:
    return [SchemeLine(scheme, len(tokens), sum(tokens)) for scheme, tokens in by_scheme.items()]
