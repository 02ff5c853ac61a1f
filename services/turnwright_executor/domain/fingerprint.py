"""Fingerprints of turns, for detecting repeated ones.

Source: row RU280.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from turnwright_grammar.reply import Command

FINGERPRINT_CHARS: Final = 32

# What a model says about its work varies from turn to turn even while the work goes in circles.
_PROSE: Final = frozenset({"think", "update"})


def fingerprint(commands: Sequence[Command]) -> str:
    """Digest of a turn's commands with attributes and bodies, in order; an empty turn has one too.

    The order of attributes is ignored, and so is the text of think and update.
    """
    acts = [
        [command.name, sorted(command.attributes.items()), "" if command.name in _PROSE else command.body]
        for command in commands
    ]
    text = json.dumps(acts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARS]
