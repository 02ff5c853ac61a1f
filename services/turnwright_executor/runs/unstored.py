"""What is known here of a loop and is not in the store: it is away, or it takes nothing of it.

A reply that was paid for is not asked for again, an outside effect is not told as indeterminate, and a loop whose end
the store did not take only ends: its model is not called any more.
"""

from __future__ import annotations

from dataclasses import field

from turnwright_core.values import mutable
from turnwright_executor.tools.contract import Done
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.settlement import Ending


@mutable
class Unstored:
    """Of one loop, by its number."""

    loop: int
    draft: Draft = field(default_factory=Draft)
    """The reply of the open turn, as far as it has come."""
    came: dict[str, Done] = field(default_factory=dict)
    """What came of outside effects of the open turn, by record."""
    ending: Ending | None = None
    """How it ends, once that is decided from outside of its turns."""
