"""The call of a model, from the executor to the provider, and the parts of its reply, as values.

A provider in the same process gets these; over the network they become the messages of provider_service.proto, where
meanings and limits are (turnwright_core.wire.model_calls).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from turnwright_values.provider import Finish, Retry, Tool

from turnwright_core.chat.deltas import Delta

REFUSED_BLOCKS: Final = "refused_blocks"
REFUSED_IMAGES: Final = "refused_images"
REFUSED_SILENCE: Final = "refused_silence"
REFUSABLE: Final = frozenset({REFUSED_BLOCKS, REFUSED_IMAGES, REFUSED_SILENCE})
"""What a vendor may refuse of a conversation: names in GenerateRequest.refused and Dropped.field."""


GeneratePart = Delta | Retry | Finish
"""GenerateResponse."""


def tools_digest(tools: Iterable[Tool]) -> str:
    """GenerateRequest.tools_digest of a list of tools."""
    digest = hashlib.sha256()
    for tool in tools:
        for text in (tool.name, tool.description, tool.parameters):
            data = text.encode(errors="replace")
            digest.update(b"%d:%b" % (len(data), data))
        digest.update(b"%d%d" % (tool.strict, tool.cache))
    return digest.hexdigest()
