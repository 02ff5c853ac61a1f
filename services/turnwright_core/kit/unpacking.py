"""Bodies of HTTP answers, unpacked piece by piece: what a small one unpacks to costs its reader no more than a piece.

Only what was asked for is unpacked, and only once: two encodings, one in the other, make gigabytes of a few kilobytes
before anybody has counted them.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from typing import Final

PIECE_BYTES: Final = 64 * 1024
"""Longest piece that is made of a packed one."""

GZIP: Final = frozenset({"gzip", "x-gzip"})


class EncodingError(ValueError):
    """An answer is packed in a way that was not asked for; the text says in which."""


async def unpacked(
    pieces: AsyncIterator[bytes], encoding: str, accepted: Collection[str]
) -> AsyncGenerator[bytes, None]:
    """A body in pieces of a bounded size. `encoding` is its header; `accepted` are gzip, deflate or both.

    Raises EncodingError for any other encoding and for several, zlib.error, and EOFError for a body that was cut.
    """
    used = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if not used:
        async for piece in pieces:
            yield piece
        return
    if len(used) > 1 or used[0] not in accepted:
        raise EncodingError(f"the answer is packed as {encoding[:40]!r}, which was not asked for")
    # 32 more than the window: zlib looks which of its two headers is there.
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    has_any = False
    async for packed in pieces:
        has_any = has_any or bool(packed)
        left = packed
        while left and not unpacker.eof:
            yield unpacker.decompress(left, PIECE_BYTES)
            left = unpacker.unconsumed_tail
            # A piece becomes a thousand times as much, and nothing else in between would let others run.
            await asyncio.sleep(0)
        if unpacker.eof:
            return
    if has_any:
        raise EOFError("the answer ends in the middle")
