"""The size gate of `known://`: one fact per entry (rows RU069, RU221; decision C17)."""

from __future__ import annotations

from turnwright_core.text import count_tokens, scheme_of
from turnwright_executor.tools.contract import refusal
from turnwright_executor.tools.limits import ToolLimits


def check_size(path: str, text: str, limits: ToolLimits) -> None:
    """Raises RefusedError for a body that is too long for its scheme, whichever command writes it."""
    tokens = count_tokens(text, limits.token_divisor)
    if scheme_of(path) != "known" or tokens <= limits.known_tokens_max:
        return
    raise refusal(
        "too_large:413",
        f"{path} would hold {tokens} tokens; an entry of known:// holds at most {limits.known_tokens_max}. "
        "Write one fact per entry, split the rest over several paths such as known://topic/part, and leave out "
        "what <get> can bring back from its source.",
    )
