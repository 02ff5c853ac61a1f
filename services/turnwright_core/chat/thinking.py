"""Merging reasoning blocks that arrive in pieces, several open at once. Source: RD03."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace
from turnwright_values.replies import ThinkingBlock

SIGNED: Final = "thinking"
"""Type of the blocks whose text is signed."""


def with_text(blocks: tuple[ThinkingBlock, ...], reasoning: str) -> tuple[ThinkingBlock, ...]:
    """The blocks in a form that can be sent back: a signed block gets its text, if that was streamed separately.

    If several are signed, nobody knows whose text it is.
    """
    signed = [block for block in blocks if block.type == SIGNED]
    if len(signed) != 1 or signed[0].text:
        return blocks
    return tuple(replace(block, text=reasoning) if block.type == SIGNED else block for block in blocks)


def merge_thinking(held: list[ThinkingBlock], blocks: Iterable[ThinkingBlock]) -> None:
    """Let each block replace its counterpart in `held`, or append it.

    Fields that a block leaves empty stay as they were. A signature is opaque: a new one replaces the old.
    """
    for block in blocks:
        place = next((n for n, other in enumerate(held) if _is_same(other, block)), None)
        if place is None:
            held.append(block)
        else:
            held[place] = _updated(held[place], block)


def _is_same(one: ThinkingBlock, other: ThinkingBlock) -> bool:
    if one.type != other.type:
        return False
    if other.index is not None:
        return one.index == other.index
    if other.id:
        return one.id == other.id
    return bool(other.signature) and one.signature == other.signature


def _updated(old: ThinkingBlock, new: ThinkingBlock) -> ThinkingBlock:
    return replace(
        old,
        id=new.id or old.id,
        text=new.text or old.text,
        signature=new.signature or old.signature,
        data=new.data or old.data,
    )
