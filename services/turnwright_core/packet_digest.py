"""The digest of a packet: one and the same for whoever made it, stored it or sent it.

Source: architecture 3 (what the model was sent), 11 (the stored packet is sent again).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def packet_digest(messages: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over the roles, lengths and texts of messages, in hexadecimal; however the texts are cut into pieces."""
    digest = hashlib.sha256()
    for role, text in messages:
        content = text.encode()
        digest.update(f"{role}:{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
