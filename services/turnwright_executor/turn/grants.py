"""What a run accepts without asking, as its owner knows it.

A grant that is made holds from the next turn on, and one that is taken away from the next effect: the store checks the
mark of each effect that nobody has decided on. Source: decision C62; row RC02.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from turnwright_values.types import Run

from turnwright_core.decisions import Permission
from turnwright_core.turn_settings import grant_for


class Grants:
    """The grants of one claimed run. Mutable: they are read again."""

    def __init__(self, run: Run, read: Callable[[], Awaitable[Run]]) -> None:
        """Start from the run with its active loop; `read` reads it again."""
        self._run = run
        self._read = read

    @property
    def is_yolo(self) -> bool:
        """Whether every proposal is accepted."""
        return self.grant_for("") is not None

    def grant_for(self, tool: str) -> Permission | None:
        return grant_for(self._run, tool)

    def rejects(self, tool: str) -> bool:
        rules = self._run.settings.tool_rules
        return rules is not None and tool in rules.rejected

    def turn_begun(self, run: Run | None) -> None:
        """A turn has begun; the run as it is then, None if that is not known."""
        self._run = run or self._run

    async def refresh(self) -> None:
        """Read them again: one was taken away. Raises TurnwrightError."""
        self._run = await self._read()
