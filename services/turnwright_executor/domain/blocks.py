"""Cuts a packet into blocks that its neighbours share, so that each is stored once.

A packet is elements that begin at the start of a line; most of them stand in the next packet too. A cut goes before
each such line, whatever it belongs to: a body that holds one makes more blocks, never wrong ones, since the blocks
joined are the text.
Source: architecture 3 (what the model was sent); decision C22.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BLOCK_BYTES_MIN: Final = 64
"""Shorter pieces join the next one: a digest alone has 32 bytes."""

_ELEMENT: Final = re.compile(r"(?<=\n)(?=<[A-Za-z])")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a message, and its SHA-256."""

    digest: bytes
    text: str


def blocks_of(text: str) -> list[Block]:
    """The pieces of a text, in order; joined they are the text."""
    return [Block(hashlib.sha256(piece.encode()).digest(), piece) for piece in _pieces(_ELEMENT.split(text))]


def _pieces(parts: Iterable[str]) -> list[str]:
    pieces: list[str] = []
    short = ""
    for part in parts:
        short += part
        if len(short) >= BLOCK_BYTES_MIN:
            pieces.append(short)
            short = ""
    return [*pieces, short] if short else pieces
