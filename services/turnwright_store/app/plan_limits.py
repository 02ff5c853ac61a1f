"""Size limits for plans: the total of a run, and the window of the model that reads them.

Plans are never summarized, so a plan that no packet could hold is refused when it is set, whoever sets it. Source: rows
RP02, RP08; decision C46.
"""

from __future__ import annotations

from typing import Final

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import PLANS_BYTES_MAX
from turnwright_core.text import tokens_of
from turnwright_store.ports import Connection
from turnwright_store.sql import plans as rows
from turnwright_store.sql.registry import find_model
from turnwright_store.sql.runs import RunHead, get_run

_ALWAYS_TOKENS: Final = 512
"""Plans of this size fit any window: the instructions alone are longer."""

_CURE: Final = "Set one of them again, shorter, or remove one."


def check_plan_size(
    connection: Connection, run: RunHead, replaced: str, text: str, size_bytes: int, *, window: int | None, divisor: int
) -> None:
    """Refuse a text if all plans of the run together become too long: each packet contains all of them.

    `size_bytes` is the total with this text, `replaced` the path of the plan that it replaces, `window` the tokens of a
    packet (0: by the settings of the run; None: do not check), `divisor` that of the token estimate. Raises
    LIMIT_EXCEEDED.
    """
    if size_bytes > PLANS_BYTES_MAX:
        raise _over_limit(PLANS_BYTES_MAX, size_bytes, "bytes", f"the limit is {PLANS_BYTES_MAX}")
    # A code point has at least one byte, so this is an upper bound.
    most = tokens_of(size_bytes, divisor)
    if window is None or most <= _ALWAYS_TOKENS:
        return
    window = window or _context_window(connection, run)
    if window and most >= window:
        others = sum(len(body) for body in rows.current_bodies(connection, run.id, replaced))
        tokens = tokens_of(others + len(text), divisor)
        if tokens >= window:
            raise _over_limit(window, tokens, "tokens", f"a packet of this run has {window} for everything")


def _context_window(connection: Connection, run: RunHead) -> int:
    """The context window of the run's model, or the run's own limit if that is smaller; 0: unknown."""
    seen = get_run(connection, run.project, run.alias)
    model = find_model(connection, seen.active.settings.model if seen.active else seen.run.settings.model)
    known = (seen.run.settings.context_limit or 0, model.window if model else 0)
    return min(filter(None, known), default=0)


def _over_limit(limit: int, actual: int, unit: str, allowed: str) -> Exception:
    message = f"The plans of this run would have {actual} {unit} together; {allowed}. {_CURE}"
    return fault(Reason.LIMIT_EXCEEDED, message, field="plans", limit=limit, actual=actual, unit=unit)
