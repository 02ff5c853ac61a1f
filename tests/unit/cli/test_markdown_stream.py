"""Markdown that arrives in pieces: blocks, colours, widths, and what a model must not do to a terminal."""

from __future__ import annotations

import asyncio
import io

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from turnwright_cli.markdown_stream import CODE_LINES_MAX, REDRAW_S, MarkdownStream, finished_part
from turnwright_cli.plain import safe_text

LONG = "\n".join(f"line_{number} = {number}" for number in range(2 * CODE_LINES_MAX + 5))


def shown(text: str, *, columns: int = 40, size: int = 7, pause_s: float = 0.0) -> tuple[str, str]:
    """What stands on a terminal after a text that came in pieces of a size, and all that was written for it."""
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=True, width=columns, height=20, color_system="standard", legacy_windows=False
    )

    async def stream() -> None:
        markdown = MarkdownStream(console)
        for at in range(0, len(text), size):
            markdown.feed(safe_text(text[at : at + size]))
            await asyncio.sleep(pause_s)
        markdown.finish()

    asyncio.run(stream())
    screen = pyte.HistoryScreen(columns, 200)
    pyte.Stream(screen).feed(file.getvalue().replace("\n", "\r\n"))
    return "\n".join(line.rstrip() for line in screen.display).strip("\n"), file.getvalue()


def test_a_table_breaks_long_words_and_hides_nothing() -> None:
    word = "".join(map(str, range(60)))
    screen, _ = shown(f"| a | b |\n|---|---|\n| 1 | {word} |\n\nThe end.\n")
    assert "…" not in screen
    assert word in "".join(screen.split())


def test_blocks_are_rendered_once_however_they_are_cut() -> None:
    text = "# Title\n\nSome **bold** text.\n\n- one\n- two\n  - deep\n\n```python\nx = 1\n```\nAfter it.\n"
    wanted, raw = shown(text, size=len(text))
    for part in ("Title", "Some bold text.", "one", "deep", "x = 1", "After it."):
        assert wanted.count(part) == 1, wanted
    assert "**" not in wanted
    assert "`" not in wanted
    assert "\x1b[1mbold\x1b[0m" in raw
    assert all(shown(text, size=size)[0] == wanted for size in (1, 3, 50))
    assert shown(text, size=9, pause_s=REDRAW_S * 1.5)[0] == wanted


def test_code_without_an_end_and_code_that_is_long_are_shown_whole() -> None:
    assert "x = 1" in shown("```python\nx = 1\n")[0]
    told, _ = shown(f"```python\n{LONG}\n```\n", columns=60)
    assert [line.strip() for line in told.splitlines() if line.strip()] == LONG.splitlines()


def test_narrow_terminals_and_wide_characters_fit() -> None:
    told, _ = shown("## 見出し\n\n" + "漢字と🙂の文 " * 6 + "\n\n| a | b |\n|---|---|\n| 漢字 | 🙂 |\n", columns=20)
    assert told.replace("\n", "").replace(" ", "").count("漢字と🙂の文") == 6


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("<b>new</b> <!-- no -->", "<b>new</b> <!-- no -->"),
        ("&#x1b;[31m &#x202e;", "&#x1b;[31m &#x202e;"),
        ("[here](http://evil.example)", "http://evil.example"),
        ("[a]: http://hidden.example", "http://hidden.example"),
        ("a\x1b]0;title\x07b \x1b[2J", "a]0;titleb [2J"),
    ],
)
def test_nothing_is_hidden_and_nothing_reaches_the_terminal_as_an_order(text, stays) -> None:
    told, raw = shown(text, columns=80)
    assert stays in told
    assert "\x1b]" not in raw
    assert "\u202e" not in raw


@given(st.lists(st.sampled_from(["```", "~~~~", "- a", "  b", "", "# h", "text", "| a | b |", "1. x", "    code"])))
def test_parts_are_those_of_the_text(lines) -> None:
    rest, parts = "\n".join(lines), []
    while done := finished_part(rest):
        assert len(done[1]) < len(rest)
        parts.append(done[0])
        rest = done[1]
    assert "".join([*parts, rest]) == "\n".join(lines)
