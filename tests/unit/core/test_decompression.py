"""How much of a body its reader gets before the event loop serves others: counted in turns of the loop, never in time."""

import asyncio
import gzip
import zlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from turnwright_kit.decompression import GZIP, PIECE_BYTES, PIECE_COST_BYTES, decompress

LINES = b"data: {}\n\n" * 20_000


async def arriving(pieces: list[bytes]) -> AsyncIterator[bytes]:
    """Pieces that are all there already, so that nobody waits for one."""
    for piece in pieces:
        yield piece


async def read_in_turns(pieces: list[bytes], encoding: str) -> tuple[bytes, Counter[int], Counter[int]]:
    """The body, and for each turn of the loop how many bytes and how many pieces of it were given."""
    turn = 0

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    sizes: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    body = bytearray()
    working = asyncio.create_task(others())
    async for piece in decompress(arriving(pieces), encoding, GZIP):
        body += piece
        sizes[turn] += len(piece)
        counts[turn] += 1
    working.cancel()
    return bytes(body), sizes, counts


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("pieces", "encoding"),
    [
        pytest.param([gzip.compress(LINES, mtime=0)], "gzip", id="packed"),
        pytest.param([bytes([byte]) for byte in gzip.compress(LINES, mtime=0)], "gzip", id="packed-in-bytes"),
        pytest.param([LINES], "", id="one-piece"),
        pytest.param([LINES[start : start + 65_536] for start in range(0, len(LINES), 65_536)], "", id="reads"),
        pytest.param([LINES[start : start + 1] for start in range(20_000)], "identity", id="bytes"),
    ],
)
async def test_others_have_their_turn_after_a_few_kilobytes_or_pieces_of_a_body(pieces, encoding):
    body, sizes, counts = await read_in_turns(pieces, encoding)

    assert body == (LINES if encoding == "gzip" else b"".join(pieces))
    assert max(sizes.values()) < 2 * PIECE_BYTES
    assert max(counts.values()) <= PIECE_BYTES // PIECE_COST_BYTES + 1


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, PIECE_BYTES + 258])
async def test_all_that_a_piece_unpacks_to_is_given_before_the_next_one_comes(size):
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    first = packer.compress(bytes(size)) + packer.flush(zlib.Z_SYNC_FLUSH)
    seen = bytearray()

    async def waiting() -> AsyncIterator[bytes]:
        yield first
        assert len(seen) == size
        yield packer.flush()

    async for piece in decompress(waiting(), "gzip", GZIP):
        seen += piece

    assert bytes(seen) == bytes(size)
