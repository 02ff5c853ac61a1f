"""Status line: one line at the bottom of a terminal that says what is being waited for, and disappears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from rich.console import Console

_ERASE: Final = "\r\x1b[2K"
_TICK_S: Final = 0.5


class StatusLine:
    """A line that is rewritten in place until `clear`. Without a terminal, nothing is written."""

    def __init__(
        self, console: Console, above: Callable[[], list[str]] = list, below: Callable[[], list[str]] = list
    ) -> None:
        """`above`, `below`: lines that are shown with it, each within the width of the console."""
        self._console = console
        self._above = above
        self._below = below
        self._live = console.is_terminal and not console.is_dumb_terminal
        self._ticker: asyncio.Task[None] | None = None
        self._shown = 0
        self._words: Callable[[], str] | None = None
        self._text: Callable[[], str] = str

    def waiting(self, text: str) -> None:
        """Show the text with the seconds elapsed since now."""
        start = time.monotonic()
        self._run(lambda: f"{text} ({time.monotonic() - start:.0f} s)")

    def counting(self, words: Callable[[], str]) -> None:
        """Show the text returned by the function, polled repeatedly; if it is already shown, it just continues."""
        if self._words != words or self._ticker is None:
            self._run(words)
            self._words = words

    def redraw(self) -> None:
        """Show at once what stands above and below it, also if nothing is waited for."""
        if self._ticker is None:
            self._run(str)
        if self._live:
            self._draw()

    def clear(self) -> None:
        self._words = None
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        self.hide()

    def hide(self) -> None:
        """Make room for a line; it comes again at the next tick."""
        if self._shown:
            self._console.file.write(self._erase())
            self._console.file.flush()
            self._shown = 0

    def _erase(self) -> str:
        """Back to the first line that is shown, with nothing below it."""
        return f"\r\x1b[{self._shown - 1}A\x1b[J" if self._shown > 1 else _ERASE

    def _run(self, text: Callable[[], str]) -> None:
        self.clear()
        if self._live:
            self._text = text
            self._ticker = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        # Nothing flashes up for what ends at once.
        await asyncio.sleep(_TICK_S)
        while True:
            self._draw()
            await asyncio.sleep(_TICK_S)

    def _draw(self) -> None:
        words = self._text()[: max(1, self._console.width - 1)]
        lines = [*self._above(), *([words] if words else []), *self._below()]
        self._console.file.write(self._erase() + "\r\n".join(lines))
        self._console.file.flush()
        self._shown = len(lines)
