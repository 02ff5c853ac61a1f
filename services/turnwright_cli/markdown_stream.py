"""Markdown on a terminal while it is being written.

The block that is being written is drawn again in place as it grows; once the next one begins, it is printed and not
touched again. Nothing a model writes is hidden: HTML, link targets and references are shown as text, and an entity is
not read, because it could name a control character.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from rich.live import Live

REDRAW_S: Final = 0.05
"""Seconds between two drawings of a block."""

BLOCK_CHARS_MAX: Final = 4096
"""Length from which a block is printed in parts: each drawing renders it anew."""

CODE_LINES_MAX: Final = 40
"""Lines of code from which they are printed in parts."""

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")


class MarkdownStream:
    """Renders text in Markdown that arrives in pieces. The text must have no control characters."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ""
        self._live: Live | None = None
        self._redraw: asyncio.TimerHandle | None = None

    def feed(self, text: str) -> None:
        self._text += text
        while done := finished_part(self._text):
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
        lines = [_text_of(line) for line in self._console.render_lines(_rendered(text), pad=False)]
        while lines and not lines[0].plain.strip():
            del lines[0]
        while lines and not lines[-1].plain.strip():
            del lines[-1]
        return lines

    def _draw(self) -> None:
        from rich.live import Live  # noqa: PLC0415 - see `_parser`

        self._redraw = None
        lines = self._lines(self._text)
        # What does not fit comes once the block is whole.
        tail = lines[-max(1, self._console.height - 2) :]
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
    """The first block of a text, if what follows cannot change it, and the rest; else None."""
    lines = text.split("\n")
    fence, begun = "", 0
    for number, line in enumerate(lines[:-1]):
        goes_on = not _begins(lines[number + 1])
        if fence:
            closing = line.strip()
            is_closed = closing.startswith(fence) and not closing.strip(fence[0])
            fence = "" if is_closed else fence
            if is_closed and not goes_on:
                return _parted(lines, number + 1)
        elif found := _FENCE.match(line):
            if number:
                return _parted(lines, number)
            fence, begun = found[1], number
        elif not line.strip() and not goes_on:
            return _parted(lines, number + 1)
    if fence and len(lines) - begun > CODE_LINES_MAX:
        return "\n".join([*lines[:-1], fence]), "\n".join([lines[begun], lines[-1]])
    if not fence and len(text) > BLOCK_CHARS_MAX:
        cut = max(text.rfind("\n", 0, -1), text.rfind(" ", 0, -1)) + 1 or len(text)
        return text[:cut], text[cut:]
    return None


def _parted(lines: list[str], number: int) -> tuple[str, str]:
    return "".join(f"{line}\n" for line in lines[:number]), "\n".join(lines[number:])


def _begins(line: str) -> bool:
    """Whether a line, as far as it is known, begins something new and does not continue a list."""
    return bool(line) and not line[0].isspace()


def _rendered(text: str) -> Any:
    make, parser = _renderer()
    made = make()
    made.parsed = parser.parse(text)
    return made


@cache
def _renderer() -> tuple[Callable[[], Any], MarkdownIt]:
    """Loaded with the first text: the import takes as long as the start of a small command."""
    from markdown_it import MarkdownIt  # noqa: PLC0415
    from rich.markdown import Heading, Markdown, TableElement  # noqa: PLC0415

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


def _text_of(segments: Any) -> Text:
    line = Text()
    for segment in segments:
        line.append(segment.text, segment.style)
    return line
