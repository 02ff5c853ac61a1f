"""Bounded decompression of HTTP bodies, piece by piece: a decompression bomb costs no more than one piece.

Only a requested encoding is decompressed, and only once: two nested encodings turn kilobytes into gigabytes before
anybody has counted them.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

PIECE_BYTES: Final = 4 * 1024
"""Maximum size of a piece; after as many bytes the event loop gets a turn, because processing them takes milliseconds
and they may all be available at once.
"""

PIECE_COST_BYTES: Final = 256
"""Overhead added to each piece, so that many short pieces count no less than a few long ones."""

GZIP: Final = frozenset({"gzip", "x-gzip"})


class EncodingError(ValueError):
    """An answer has an encoding that was not requested; the text names it."""


async def decompress(
    pieces: AsyncIterator[bytes], encoding: str, accepted: frozenset[str]
) -> AsyncGenerator[bytes, None]:
    """A decompressed body in pieces of bounded size. `encoding` is its header; `accepted` are gzip, deflate or both.

    Raises EncodingError for any other encoding and for several, zlib.error, and EOFError for a truncated body.
    """
    used = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if len(used) > 1 or not accepted.issuperset(used):
        raise EncodingError(f"the answer is encoded as {encoding[:40]!r}, which was not asked for")
    # 32 plus the window size: zlib detects which of its two headers is there.
    decompressor = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32) if used else _Plain()
    has_any = False
    spent_bytes = 0
    async for compressed in pieces:
        has_any = has_any or bool(compressed)
        left, is_full = compressed, False
        spent_bytes += PIECE_COST_BYTES
        while (left or is_full) and not decompressor.eof:
            piece = decompressor.decompress(left, PIECE_BYTES)
            left, is_full = decompressor.unconsumed_tail, len(piece) == PIECE_BYTES
            if piece:
                yield piece
            spent_bytes += len(piece)
            if spent_bytes >= PIECE_BYTES:
                spent_bytes = 0
                await asyncio.sleep(0)
        if decompressor.eof:
            return
    if has_any and used:
        raise EOFError("the answer ends in the middle")


class _Plain:
    """The identity encoding, with zlib's interface."""

    eof = False
    unconsumed_tail = b""

    def decompress(self, data: bytes, bytes_max: int) -> bytes:
        """The first bytes; the rest is `unconsumed_tail`."""
        self.unconsumed_tail = data[bytes_max:]
        return data[:bytes_max]
