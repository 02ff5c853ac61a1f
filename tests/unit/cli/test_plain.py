"""Text of strangers cannot steer a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_cli.plain import safe_line, safe_text, shown_text

ESCAPES = {
    "clear the screen": "\x1b[2J\x1b[H",
    "set the clipboard": "\x1b]52;c;ZWNobw==\x07",
    "eight-bit control sequence": "\x9b31m",
    "overwrite the line": "rm -rf /\rls",
    "backspaces": "evil\b\b\b\bgood",
    "right-to-left override": "user\u202etxt.exe",
    "hyperlink": "\x1b]8;;http://x\x1b\\y\x1b]8;;\x1b\\",
}


@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES.keys())
def test_an_escape_reaches_no_terminal(text) -> None:
    for made in (safe_text(text), safe_line(text), shown_text(text)):
        assert not [c for c in made if unicodedata.category(c) == "Cc" or c == "\u202e"]


def test_what_is_decided_on_is_shown_whole() -> None:
    assert shown_text("rm -rf /\rls \x1b[8m") == r"rm -rf /\rls \x1b[8m"


def test_ordinary_text_stays_as_it_is() -> None:
    text = "if a > b:\n\treturn 'ä漢字👩‍💻'\n"

    assert safe_text(text) == text
    assert shown_text(text) == text


def test_a_line_is_one_line_of_bounded_length() -> None:
    assert safe_line(" a\n\tb\r\n ") == "a b"
    assert safe_line("x" * 20, 10) == "xxxxxxx..."


@given(st.text())
def test_nothing_but_tabs_and_line_feeds_controls(text) -> None:
    left = [c for c in safe_text(text) if unicodedata.category(c) in ("Cc", "Cs")]

    assert set(left) <= {"\t", "\n"}
    assert "\n" not in safe_line(text)
    safe_text(text).encode()
