"""The digest of a packet: one and the same for whoever made it, stored it or sent it.

Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

_TOGETHER: Final = 16
"""Pieces that are hashed at a time. The text of a whole packet is so long that the system maps memory for it each time,
which costs as much as hashing it."""


def packet_digest(messages: Iterable[tuple[str, Sequence[str]]]) -> str:
    """SHA-256 over the roles, lengths and texts of messages, in hexadecimal; however the texts are cut into pieces."""
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
