"""Markdown on a terminal while it is being written.

The block that is being written is drawn again in place as it grows; once the next one begins, it is printed and not
touched again. Nothing a model writes is hidden: HTML, link targets and references are shown as text, and an entity is
not read, because it could name a control character.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from rich.live import Live
    from rich.markdown import Markdown

REDRAW_S: Final = 0.05
"""Seconds between two drawings of a block."""

BLOCK_CHARS_MAX: Final = 4096
"""Length from which a block is printed in parts: each drawing renders it anew."""

CODE_LINES_MAX: Final = 40
"""Lines of code from which they are printed in parts."""


class MarkdownStream:
    """Renders text in Markdown that arrives in pieces. The text must have no control characters."""

    def __init__(self, console: Console, below: Callable[[], list[str]] = list) -> None:
        """`below`: lines that are shown below the block that is being written, within the width of the console."""
        self._console = console
        self._below = below
        self._text = ""
        self._live: Live | None = None
        self._redraw: asyncio.TimerHandle | None = None

    def feed(self, text: str) -> None:
        may_end = "\n" in text or self._text.endswith("\n\n")
        self._text += text
        while (may_end or len(self._text) > BLOCK_CHARS_MAX) and (done := finished_part(self._text)):
            shown, self._text = done
            self._erase()
            self._print(shown)
        if self._redraw is None and self._text.strip():
            self._redraw = asyncio.get_running_loop().call_later(REDRAW_S, self._draw)

    def finish(self) -> None:
        """Print what is left; whatever comes next begins a new line."""
        self._erase()
        left, self._text = self._text, ""
        if left.strip():
            self._print(left)

    def _print(self, text: str) -> None:
        for line in self._lines(text):
            self._console.print(line, soft_wrap=False, crop=False)
        if text.endswith("\n\n"):
            self._console.print()

    def _lines(self, text: str) -> list[Text]:
        """The rendered lines; empty ones around a block are those that stand in the text."""
        make, parser = _renderer()
        rendered = make()
        rendered.parsed = parser.parse(text)
        shown = self._console.render_lines(rendered, pad=False)
        lines = [Text.assemble(*((part.text, part.style or "") for part in line)) for line in shown]
        while lines and not lines[0].plain.strip():
            del lines[0]
        while lines and not lines[-1].plain.strip():
            del lines[-1]
        return lines

    def redraw(self) -> None:
        """Draw it now, because what stands below it has changed."""
        if self._redraw is not None:
            self._redraw.cancel()
        self._draw()

    def _draw(self) -> None:
        from rich.live import Live

        self._redraw = None
        below = [Text(line) for line in self._below()]
        lines = self._lines(self._text) if self._text.strip() else []
        # What does not fit comes once the block is whole.
        tail = [*lines[-max(1, self._console.height - 2 - len(below)) :], *below]
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False,
                              redirect_stderr=False, vertical_overflow="visible")  # fmt: skip
            self._live.start()
        self._live.update(Text("\n").join(tail), refresh=True)

    def _erase(self) -> None:
        if self._redraw is not None:
            self._redraw.cancel()
            self._redraw = None
        if self._live is not None:
            self._live.stop()
            self._live = None


def finished_part(text: str) -> tuple[str, str] | None:
    """The first block of a text, if another one has begun, and the rest; else None."""
    *whole, last = lines = text.split("\n")
    # What an unfinished line is, is only known below an empty one.
    known = lines if whole and not (whole[-1].strip() or last[:1].isspace()) else whole
    tokens = (token for token in _renderer()[1].parse("\n".join(known)) if not token.level)
    blocks = [(token, token.map[0], token.map[1]) for token in tokens if token.map]
    if len(blocks) > 1:
        at = blocks[1][1]
        return "".join(f"{line}\n" for line in lines[:at]), "\n".join(lines[at:])
    if blocks and blocks[0][0].type == "fence":
        token, begin, end = blocks[0]
        is_closed = end < len(whole) or whole[-1].strip().startswith(token.markup)
        if not is_closed and len(whole) - begin >= CODE_LINES_MAX:
            return "\n".join([*whole, token.markup]), "\n".join([whole[begin], last])
    elif len(text) > BLOCK_CHARS_MAX:
        cut = max(text.rfind("\n", 0, -1), text.rfind(" ", 0, -1)) + 1 or len(text)
        return text[:cut], text[cut:]
    return None


@cache
def _renderer() -> tuple[Callable[[], Markdown], MarkdownIt]:
    """Loaded with the first text: the import takes as long as the start of a small command."""
    from markdown_it import MarkdownIt
    from rich.markdown import Heading, Markdown, TableElement

    class PlainHeading(Heading):
        """At the left and without a box, as in a text."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            self.text.stylize("bold underline" if self.tag == "h1" else "bold")
            yield self.text

    class WholeTable(TableElement):
        """With long words broken, and not cut."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for table in super().__rich_console__(console, options):
                for column in getattr(table, "columns", ()):
                    column.overflow = "fold"
                yield table

    class SafeMarkdown(Markdown):
        elements = {**Markdown.elements, "heading_open": PlainHeading, "table_open": WholeTable}  # noqa: RUF012 - as in the library

    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable(["entity", "reference", "lheading"])
    return lambda: SafeMarkdown("", hyperlinks=False, code_theme="ansi_dark"), parser
