"""Texts as they are stored: compressed where that pays, alone or by what other texts say already."""

from __future__ import annotations

import threading
from typing import Final

import zstandard

COMPRESSED_FROM_BYTES: Final = 256
"""Length from which a text is compressed; below, the frame eats the gain."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""Begins every compressed text and no valid UTF-8, so that a stored value says by itself what it is."""

_LEVEL: Final = 1
"""Level 3 takes a quarter longer and saves a hundredth."""


PHRASED_FROM_BYTES: Final = 64
"""The same for a text of a packet."""

PHRASES: Final = b"""\
| scheme | visible | tokens | % |
|---|---|---|---|
| unknown | 1 | 0% |
| skill | https | prompt | sh | env | known | file | log |

Summarized: 0 entries, 0 tokens (0% of budget).
System: 1000 tokens (1% of budget).
Total: 1 visible + 0 summarized entries; tokenUsage 1000 / ceiling 1000. 1000 tokens free.
</budget><budget tokenUsage="1000" tokensFree="1000">
[the first 500 of [the last 500 of [outline of  characters] lines]
<prompt tokenUsage="1000" tokensFree="1000" path="prompt://1" mode="act">
<<:::prompt://1
</prompt>
<known path="known:// tokens="100"/>
</known>
<file path="src/
</file>
<unknown path="unknown://
<log_ path="log://turn_1/get/" target="" status="404" outcome="" summary="
<sh path="sh://turn_1/" target="" status="200" tokens="
<<:::log://turn_
</log_>
"""
"""What texts of packets often say, so that short ones get shorter too. Never changed: what is stored goes by it."""


def _words(example: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(example + PHRASES, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _packer(words: zstandard.ZstdCompressionDict) -> zstandard.ZstdCompressor:
    # With a checksum of the text: another example would give another text, and nobody would see it.
    return zstandard.ZstdCompressor(level=_LEVEL, dict_data=words, write_checksum=True)


class _Codecs(threading.local):
    """Contexts of zstandard serve one thread at a time."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor()
        self.phrased = _packer(_words(b""))
        self.phrase_reader = zstandard.ZstdDecompressor(dict_data=_words(b""))


_codecs: Final = _Codecs()


def is_compressed(stored: bytes) -> bool:
    """Whether a stored value is a compressed text; else it is the text."""
    return stored.startswith(_ZSTD_MAGIC)


def packed(text: str) -> bytes:
    return compressed(text.encode())


def compressed(data: bytes) -> bytes:
    """Bytes that begin like no compressed value, as they are stored."""
    if len(data) < COMPRESSED_FROM_BYTES:
        return data
    shorter = _codecs.compressor.compress(data)
    return shorter if len(shorter) < len(data) else data


def packed_by(text: str, example: bytes = b"") -> bytes:
    """A text of a packet by what an example and the phrases of packets do not say; `unpacked_by` needs the same one."""
    data = text.encode()
    if len(data) < PHRASED_FROM_BYTES:
        return data
    packer = _packer(_words(example)) if example else _codecs.phrased
    shorter = packer.compress(data)
    return shorter if len(shorter) < len(data) else data


def unpacked(stored: bytes) -> str:
    return decompressed(stored).decode()


def decompressed(stored: bytes) -> bytes:
    return _codecs.decompressor.decompress(stored) if is_compressed(stored) else stored


def unpacked_by(stored: bytes, example: bytes = b"") -> str:
    """The text of a value that was stored by an example. Raises ZstdError where it was another one."""
    if not is_compressed(stored):
        return stored.decode()
    reader = zstandard.ZstdDecompressor(dict_data=_words(example)) if example else _codecs.phrase_reader
    return reader.decompress(stored).decode()
