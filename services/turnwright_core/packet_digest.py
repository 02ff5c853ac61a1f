"""The digest of a packet: the same for the service that built it, stored it or sent it.

SHA-256 over the roles, lengths and texts of its messages. The length comes before a text, but after a conversation:
so the digest of one that has grown goes on where that of the turn before ended.
Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

CONVERSATION: Final = "conversation"
"""Role of the part of a packet that is a conversation: a message a line, as JSON."""

_PIECES_AT_ONCE: Final = 16
"""Pieces to hash at a time.

Joining the whole packet would make the allocator map memory each time, which costs as much as hashing.
"""


def packet_digest(messages: Iterable[tuple[str, Sequence[str]]]) -> str:
    """The digest of messages, hexadecimal; independent of how the texts are split."""
    digest = hashlib.sha256()
    for role, pieces in messages:
        if role == CONVERSATION:
            digest.update(_BEGIN)
            digest.update(_end(_update(digest, pieces)))
        else:
            digest.update(f"{role}:{_length(pieces)}\n".encode())
            _update(digest, pieces)
    return digest.hexdigest()


_BEGIN: Final = f"{CONVERSATION}:\n".encode()


class IncrementalDigest:
    """Digests of consecutive packets, each of which continues the previous one's conversation. Mutable."""

    def __init__(self) -> None:
        self._before: tuple[str, ...] = ()
        self._hash: Any = None
        self._pieces = self._bytes = 0

    def digest(
        self, before: Sequence[str], pieces: Sequence[str], after: Iterable[tuple[str, Sequence[str]]], *, stable: int
    ) -> str:
        """`packet_digest` of a system message, a conversation and the messages after it.

        `stable`: how many of the pieces the next conversation will probably begin with.
        """
        if self._hash is None or tuple(before) != self._before or stable < self._pieces:
            self._before, self._pieces, self._bytes = tuple(before), 0, 0
            self._hash = hashlib.sha256(f"system:{_length(before)}\n".encode())
            _update(self._hash, before)
            self._hash.update(_BEGIN)
        self._bytes += _update(self._hash, pieces[self._pieces : stable])
        self._pieces = stable
        digest = self._hash.copy()
        digest.update(_end(self._bytes + _update(digest, pieces[stable:])))
        for role, texts in after:
            digest.update(f"{role}:{_length(texts)}\n".encode())
            _update(digest, texts)
        return str(digest.hexdigest())

    def truncate(self, same: int) -> None:
        """Keep only so many of the digested pieces: the later ones have changed."""
        if same < self._pieces:
            self._hash = None


def _update(digest: Any, pieces: Sequence[str]) -> int:
    """Add texts; the answer is how many bytes they have in UTF-8."""
    size = 0
    for at in range(0, len(pieces), _PIECES_AT_ONCE):
        data = "".join(pieces[at : at + _PIECES_AT_ONCE]).encode()
        digest.update(data)
        size += len(data)
    return size


def _end(length: int) -> bytes:
    return f"\n{length}\n".encode()


def _length(pieces: Sequence[str]) -> int:
    if all(map(str.isascii, pieces)):
        return sum(map(len, pieces))
    return sum(len(piece.encode()) for piece in pieces)
