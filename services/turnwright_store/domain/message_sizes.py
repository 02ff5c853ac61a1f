"""About how many bytes rows of the ledger take in a message: the characters of their texts, and room for the rest."""

from __future__ import annotations

from typing import Final

from turnwright_core.runs import Loop, Run, Turn

ROW_BYTES: Final = 1024
"""Overhead of a row besides its texts, an upper estimate."""


def loop_bytes(loop: Loop) -> int:
    return ROW_BYTES + len(loop.prompt) + len(loop.reason) + len(loop.summary)


def run_bytes(run: Run) -> int:
    """The weight of a run with the loop that it shows."""
    texts = len(run.summary) + len(run.settings.persona or "")
    return ROW_BYTES + texts + (loop_bytes(run.loop) if run.loop else 0)


def turn_bytes(turn: Turn) -> int:
    request, result = turn.request, turn.result
    texts = len(request.persona or "") + (len(request.response_format.schema) if request.response_format else 0)
    texts += len(result.error) + len(result.reason) if result else 0
    return ROW_BYTES + texts + len("    ".join(request.tools))
