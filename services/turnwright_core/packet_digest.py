"""The digest of a packet: the same for the service that built it, stored it or sent it.

Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

_TOGETHER: Final = 16
"""Pieces to hash at a time.

Joining the whole packet would make the allocator map memory each time, which costs as much as hashing.
"""


def packet_digest(messages: Iterable[tuple[str, Sequence[str]]]) -> str:
    """SHA-256 over the roles, lengths and texts of messages, hexadecimal; independent of how the texts are split."""
    digest = hashlib.sha256()
    for role, pieces in messages:
        digest.update(f"{role}:{_length(pieces)}\n".encode())
        for at in range(0, len(pieces), _TOGETHER):
            digest.update("".join(pieces[at : at + _TOGETHER]).encode())
    return digest.hexdigest()


def _length(pieces: Sequence[str]) -> int:
    """Bytes of the pieces in UTF-8."""
    if all(map(str.isascii, pieces)):
        return sum(map(len, pieces))
    return sum(len(piece.encode()) for piece in pieces)
