"""About how many bytes rows of the ledger take in a message: their texts, and room for the rest."""

from __future__ import annotations

from typing import Final

from turnwright_values.types import Loop, Run, Turn

ROW_BYTES: Final = 1024
"""Overhead of a row besides its texts, an upper estimate."""


def loop_bytes(loop: Loop) -> int:
    return ROW_BYTES + _bytes(loop.prompt, loop.reason, loop.summary)


def run_bytes(run: Run) -> int:
    """The weight of a run with the loop that it shows."""
    return ROW_BYTES + _bytes(run.summary, run.settings.persona or "") + (loop_bytes(run.loop) if run.loop else 0)


def turn_bytes(turn: Turn) -> int:
    request, result = turn.request, turn.result
    form = request.response_format
    texts = [*request.tools, request.persona or "", form.schema if form else ""]
    if result:
        texts += (result.error, result.reason)
    return ROW_BYTES + _bytes(*texts) + 4 * len(request.tools)


def _bytes(*texts: str) -> int:
    """Their length in UTF-8: a page of Chinese prompts has to fit into a message, too."""
    return len("".join(texts).encode())
