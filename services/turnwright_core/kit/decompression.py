"""Bodies of HTTP answers, unpacked piece by piece: what a small one unpacks to costs its reader no more than a piece.

Only what was asked for is unpacked, and only once: two encodings, one in the other, make gigabytes of a few kilobytes
before anybody has counted them.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

PIECE_BYTES: Final = 4 * 1024
"""Longest piece that is given, and after so many bytes the event loop has its turn: what a reader makes of that many
takes milliseconds, whatever it is, and all of them may be there at once."""

PIECE_COST_BYTES: Final = 256
"""A piece counts as so many bytes more, so that many short ones are no longer than a few long ones."""

GZIP: Final = frozenset({"gzip", "x-gzip"})


class EncodingError(ValueError):
    """An answer is packed in a way that was not asked for; the text says in which."""


async def unpacked(
    pieces: AsyncIterator[bytes], encoding: str, accepted: frozenset[str]
) -> AsyncGenerator[bytes, None]:
    """A body in pieces of a bounded size. `encoding` is its header; `accepted` are gzip, deflate or both.

    Raises EncodingError for any other encoding and for several, zlib.error, and EOFError for a body that was cut.
    """
    used = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if len(used) > 1 or not accepted.issuperset(used):
        raise EncodingError(f"the answer is encoded as {encoding[:40]!r}, which was not asked for")
    # 32 more than the window: zlib looks which of its two headers is there.
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32) if used else _Plain()
    has_any = False
    spent_bytes = 0
    async for packed in pieces:
        has_any = has_any or bool(packed)
        left, is_full = packed, False
        spent_bytes += PIECE_COST_BYTES
        while (left or is_full) and not unpacker.eof:
            piece = unpacker.decompress(left, PIECE_BYTES)
            left, is_full = unpacker.unconsumed_tail, len(piece) == PIECE_BYTES
            if piece:
                yield piece
            spent_bytes += len(piece)
            if spent_bytes >= PIECE_BYTES:
                spent_bytes = 0
                await asyncio.sleep(0)
        if unpacker.eof:
            return
    if has_any and used:
        raise EOFError("the answer ends in the middle")


class _Plain:
    """What is not packed, by zlib's interface."""

    eof = False
    unconsumed_tail = b""

    def decompress(self, data: bytes, bytes_max: int) -> bytes:
        """The beginning of these; the rest is the tail."""
        self.unconsumed_tail = data[bytes_max:]
        return data[:bytes_max]
