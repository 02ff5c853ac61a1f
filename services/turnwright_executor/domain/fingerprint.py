"""What a turn did, as one short text, so that a turn that does the same is recognised.

Source: row RU280.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from turnwright_grammar import Command

FINGERPRINT_CHARS: Final = 32

# What a model says about its work differs from turn to turn while the work goes in circles.
_PROSE: Final = frozenset({"think", "update"})


def fingerprint(commands: Sequence[Command]) -> str:
    """The digest of a turn's commands with attributes and bodies, in order; an empty turn has one too.

    The order of attributes does not count, nor does the text of think and update.
    """
    acts = [
        [command.name, sorted(command.attributes.items()), "" if command.name in _PROSE else command.body]
        for command in commands
    ]
    text = json.dumps(acts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARS]
