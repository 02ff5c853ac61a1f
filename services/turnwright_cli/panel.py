"""What stands at the bottom of a session while a task is worked on: the plan, the queue, and what is being typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from rich.console import Console
from turnwright.types.v1 import session_command_pb2

from turnwright_cli.plain import safe_line
from turnwright_cli.plans import PlanChanges, panel_lines

QUEUE_LINES_MAX: Final = 3
"""Messages of the queue that are shown."""


class Panel:
    """Its lines, each within the width of the console."""

    def __init__(self, console: Console, plans: Callable[[], PlanChanges], *, session: bool) -> None:
        self._console = console
        self._plans = plans
        self._session = session
        self._queue: list[str] = []
        self.typed = ""

    def wait(self, queue: Iterable[session_command_pb2.QueuedCommand]) -> None:
        """These commands wait in the queue now."""
        self._queue = [safe_line(one.preview) for one in queue]

    def above(self) -> list[str]:
        """The plan and the queue, in a session on a terminal with room for them."""
        width = self._console.width - 1
        queue = [f"queued {number}: {one}"[:width] for number, one in enumerate(self._queue[:QUEUE_LINES_MAX], 1)]
        return self._plan_lines() + queue if self._session else []

    def below(self) -> list[str]:
        """The end of the line that is being typed."""
        room = max(1, self._console.width - 4)
        return [f"> {safe_line(self.typed)[-room:]}"] if self.typed else []

    def progress(self) -> str:
        """How far the plan is, unless its lines show it."""
        return "" if self._plan_lines() else self._plans().progress()

    def _plan_lines(self) -> list[str]:
        if not self._session:
            return []
        return panel_lines(self._plans().latest(), self._console.width - 1, self._console.height // 3)
