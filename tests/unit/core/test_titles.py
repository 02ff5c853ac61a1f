"""Titles: one line that shows what it says."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.errors import TurnwrightError
from turnwright_core.titles import TITLE_CHARS_MAX, check_title, title_in

REPLIES = [
    ("Count to ten", "Count to ten"),
    ('  "Count to ten."  ', "Count to ten."),
    ("\n\n# Title: Count to ten\nBecause you asked.", "Count to ten"),
    ("**Count** `to` <b>ten</b>", "Count to ten"),
    ("[Count](https://x.y/z) to ten", "Count to ten"),
    ("<script>\n</script>Count", "Count"),
    ("<<b>script>Count", "scriptCount"),
    ("\u202eCount\u2066 to\u200b\x00 ten\x1b[31m", "Count to ten"),
    ("fix snake_case in C#", "fix snake_case in C#"),
    ("Zählt bis zehn 👍", "Zählt bis zehn 👍"),
    ("w" * 300, "w" * TITLE_CHARS_MAX),
    ("", ""),
    ("\u200b\n***\n", ""),
]


@pytest.mark.parametrize(("reply", "title"), REPLIES)
def test_a_reply_is_one_plain_line(reply, title):
    assert title_in(reply) == title


@given(st.text())
def test_whatever_is_replied_is_a_title(reply):
    title = title_in(reply)
    check_title("title", title)
    assert not set(title) & set("<>\u202e\x1b")
    assert not any(unicodedata.category(char).startswith("C") for char in title)


@pytest.mark.parametrize("title", ["a\nb", "a\u202eb", " a", "a ", "\x1b[1ma", "a" * (TITLE_CHARS_MAX + 1)])
def test_what_is_no_title_is_refused(title):
    with pytest.raises(TurnwrightError, match="title"):
        check_title("title", title)
