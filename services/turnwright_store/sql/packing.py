"""Storage of texts: compressed if that pays, alone or against other texts (dictionary compression)."""

from __future__ import annotations

import threading
from typing import Final

import zstandard

COMPRESSED_FROM_BYTES: Final = 256
"""Length from which a text is compressed; for shorter ones the frame costs more than it saves."""

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""Begins every compressed text and no valid UTF-8, so that stored values identify themselves."""

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
"""Phrases that are frequent in packets, so that short texts compress, too.

Never change this: stored data depends on it.
"""


def _words(example: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(example + PHRASES, dict_type=zstandard.DICT_TYPE_RAWCONTENT)


def _packer(words: zstandard.ZstdCompressionDict) -> zstandard.ZstdCompressor:
    # With a checksum: another example would give another text, and nobody would notice.
    return zstandard.ZstdCompressor(level=_LEVEL, dict_data=words, write_checksum=True)


class _Codecs(threading.local):
    """zstandard contexts are not thread-safe."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor()
        self.phrased = _packer(_words(b""))
        self.phrase_reader = zstandard.ZstdDecompressor(dict_data=_words(b""))


_codecs: Final = _Codecs()


def is_compressed(stored: bytes) -> bool:
    """Whether a stored value is a compressed text; else it is the text itself."""
    return stored.startswith(_ZSTD_MAGIC)


def packed(text: str) -> bytes:
    return compressed(text.encode())


def compressed(data: bytes) -> bytes:
    """The stored form of bytes that cannot begin like a compressed value."""
    if len(data) < COMPRESSED_FROM_BYTES:
        return data
    shorter = _codecs.compressor.compress(data)
    return shorter if len(shorter) < len(data) else data


def packed_by(text: str, example: bytes = b"") -> bytes:
    """A text of a packet compressed against an example and PHRASES; `unpacked_by` needs the same example."""
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
    """Decompress a value that was stored with an example. Raises ZstdError for another example."""
    if not is_compressed(stored):
        return stored.decode()
    reader = zstandard.ZstdDecompressor(dict_data=_words(example)) if example else _codecs.phrase_reader
    return reader.decompress(stored).decode()
