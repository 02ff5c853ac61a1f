"""The digest of a packet: the same for the service that built it, stored it or sent it.

It is a digest over the digests of the packet's pieces, so that a turn hashes what is new and a short list:

    piece      SHA-256 of its text in UTF-8
    message    SHA-256 of the digests of its pieces, 32 bytes each, in order
    packet     SHA-256 of a line for each message, in order: role, space, digest of the message in hexadecimal, newline

Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

CONVERSATION: Final = "conversation"
"""Role of the part of a packet that is a conversation: a message a line, as JSON."""


def packet_digest(messages: Iterable[tuple[str, Sequence[str]]]) -> str:
    """The digest of messages, each with its pieces; hexadecimal."""
    return joined_digest((role, MessageDigest().digest(list(map(piece_digest, pieces)))) for role, pieces in messages)


def piece_digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def joined_digest(messages: Iterable[tuple[str, str]]) -> str:
    """The digest of a packet by those of its messages."""
    return sha256("".join([f"{role} {digest}\n" for role, digest in messages]).encode()).hexdigest()


class MessageDigest:
    """Digests of a message in consecutive packets: goes on from the pieces that both begin with. Mutable."""

    def __init__(self) -> None:
        self._hash, self._count = sha256(), 0

    def digest(self, pieces: Sequence[bytes], same: int = 0) -> str:
        """The digest of a message by those of its pieces; the first `same` are those of the last call."""
        if same < self._count:
            self._hash, self._count = sha256(), 0
        self._hash.update(b"".join(pieces[self._count : same]))
        self._count = same
        whole = self._hash.copy()
        whole.update(b"".join(pieces[same:]))
        return whole.hexdigest()
