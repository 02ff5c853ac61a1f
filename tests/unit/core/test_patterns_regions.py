"""Facts about replacing a region that was written down from memory."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwright_core.patterns.lines import TextRegion, with_line_ends_of
from turnwright_core.patterns.regions import FoundRegions, find_region
from turnwright_core.patterns.replacing import NoMatch, Replacement, replace_region
from turnwright_core.patterns.similar import Region, nearest_region


@pytest.mark.parametrize(
    ("text", "search", "replacement", "way", "after"),
    [
        ("a\nb\nc\n", "b", "x", "lines", "a\nx\nc\n"),
        ("a\nb\nc\n", "b\n", "x\n", "blanks", "a\nx\nc\n"),
        ("a\nb\nc\n", "b\n", "x", "blanks", "a\nx\nc\n"),
        ("b\nb\n\nb\n", "b\n", "x", "lines", "b\nx\nb\n"),
        ("b\nb\n\nb\n", "b\n", "x\n\n", "lines", "b\nx\n\n\nb\n"),
        ("b\n\nb\nb\n", "\nb", "x", "lines", "b\nx\nb\n"),
        ("b\n\nb\nb\n", "\nb", "", "lines", "b\nb\n"),
        ("ab\nab\n\nc\n", "b\n", "x", "exact", "ab\nax\nc\n"),
        ("  b\n  b\n\n", "b\n", "x\n", "exact", "  b\n  x\n\n"),
        ("f(a,\n  b)\n\nc\n", "f(a, b)\n", "g()", "letters", "g()\nc\n"),
        ("a\nb\n\n\nc\n", "b\n\n\n", "x", "blanks", "a\nx\nc\n"),
        ("a\n\nb\n", "\n", "x", "lines", "a\nx\nb\n"),
        ("a\nb\nc\n", "b", "", "lines", "a\nc\n"),
        ("a\nb\nc\n", "b", "\n", "lines", "a\n\nc\n"),
        ("a\nb", "b", "", "lines", "a\n"),
        ("a b c", "b", "", "exact", "a  c"),
        ("a b c", "b", "$&\\1\\n", "exact", "a $&\\1\\n c"),
        ("a = 1\naa = 1\n", "a = 1", "b", "lines", "b\naa = 1\n"),
        ("    a\n", "a", "b\nc", "exact", "    b\n    c\n"),
        ("    a\n", "a", "", "exact", ""),
        ("a  \nb\n", "a\nb", "x", "trailing", "x\n"),
        (
            "    if a:\n        b\n",
            "if a:\n    b",
            "if a:\n    b\n    c",
            "indented",
            "    if a:\n        b\n        c\n",
        ),
        ("\tif a:\n\t\tb\n", "if a:\n    b", "if c:\n    b\nd", "indented", "\tif c:\n\t\tb\n\td\n"),
        ("if a:\n  b\n", "    if a:\n      b", "    if a:\n      c\n  d", "indented", "if a:\n  c\nd\n"),
        ("\tx  =  1\n", "x = 1", "x = 2", "spaced", "\tx = 2\n"),
        ("a\n\n\nb\n", "a\nb", "x", "blanks", "x\n"),
        ("f(a,\n  b)\n", "f(a, b)", "g()", "letters", "g()\n"),
        ("say(“hi”)\n", 'say("hi")', 'say("ho")', "letters", 'say("ho")\n'),
        ("a\nb", "12 | a\n13 | b", "12 | a\n13 | c", "unnumbered", "a\nc"),
        ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "lines", "x\r\ny\r\nz\r\nc\r\n"),
        ("a\r\nb\r\n\r\nc\r\n", "b\r\n", "x\r\n\r\n", "lines", "a\r\nx\r\n\r\n\r\nc\r\n"),
        ("a\r\n\r\nb\r\n", "\r\n", "\r\n\r\n", "lines", "a\r\n\r\n\r\nb\r\n"),
        ("a\r\nb\r\n", "a", "", "lines", "b\r\n"),
        ("x\n\n\ny\n", "\n\n", "\n", "lines", "x\n\ny\n"),
    ],
)
def test_a_region_is_replaced_under_the_habits_of_the_text(text, search, replacement, way, after):
    replaced = replace_region(text, search, replacement)
    assert isinstance(replaced, Replacement)
    assert (replaced.way, replaced.text) == (way, after)


@pytest.mark.parametrize(
    ("text", "search", "lines"),
    [
        ("a\nb\na\n", "a", [1, 3]),
        ("  a\n    a\n", " a  ", [1, 2]),
        ("}\n}\n}\n", "}\n}", [1, 2]),
        ("x aaa", "aa", [1, 1]),
        ("a b\nc\na  b\nc\n", "a   b\nc", [1, 3]),
        ("a\nb\n", "zz", []),
        ("a\nb\n", "A", []),
        ("a\nb\n", "", []),
        ("", "a", []),
        ("ab\n", "  ", []),
        ("ab\n", "\n", []),
        ("b\n\nb\n\n", "b\n", [1, 3]),
        ("a\n\n\n", "\n", [2, 3]),
    ],
)
def test_what_fits_nothing_or_several_places_is_not_replaced(text, search, lines):
    unmatched = replace_region(text, search, "x")
    assert isinstance(unmatched, NoMatch)
    assert [place.first_line for place in unmatched.candidates] == lines


def test_a_unique_exact_region_wins_over_looser_ones():
    replaced = replace_region("  a\na\n    a\n", "a", "b")
    assert replaced == Replacement("  a\nb\n    a\n", TextRegion(4, 5, 2, 2), "lines")


def test_a_removed_region_of_whole_lines_is_reported_with_its_line_end():
    assert replace_region("a\r\n  b\r\nc", "b", "") == Replacement("a\r\nc", TextRegion(3, 8, 2, 2), "exact")


def test_many_places_are_counted_up_to_twenty():
    assert len(find_region("a\n" * 1_000, "a").places) == 20


LINES = st.lists(st.text(alphabet="ab (){}=\t ", max_size=6), max_size=8)


@settings(deadline=None)
@given(LINES, LINES, st.text(alphabet="ab \t\n\r$\\", max_size=20), st.integers(0, 8), st.sampled_from(["\n", "\r\n"]))
def test_no_byte_outside_of_the_reported_place_changes(lines, others, replacement, start, end_of_line):
    text = end_of_line.join([*lines, *others])
    searched = "\n".join(line.strip() for line in lines[start : start + 3])
    replaced = replace_region(text, searched, replacement)
    if isinstance(replaced, NoMatch):
        assert len(replaced.candidates) != 1
        return
    before, behind = text[: replaced.place.start], text[replaced.place.end :]
    assert replaced.text.startswith(before)
    assert replaced.text.endswith(behind)
    assert len(replaced.text) >= len(before) + len(behind)


@settings(deadline=None)
@given(st.text(max_size=40), st.text(max_size=10), st.text(max_size=10))
def test_any_texts_give_a_value(text, search, replacement):
    assert isinstance(replace_region(text, search, replacement), Replacement | NoMatch)
    assert isinstance(nearest_region(text, search), Region | None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "search"),
    [
        ("of a line\n" * 100_000, "of a line\n" * 50_000 + "b"),
        ("  a  b\n" * 40_000, " a b\n" * 20_000 + "c"),
        ("a" * 1_000_000, "a" * 500_000 + "b"),
        ("a " * 500_000, "a\n" * 250_000 + "b"),
        ("1|" * 500_000, "1 | a\n" * 120_000),
        (" " * 1_000_000 + "b", "b " * 2),
        ("}\n" * 100_000, "}\n" * 50_000 + "xyz"),
    ],
)
def test_a_megabyte_of_almost_the_same_ends(text, search):
    assert isinstance(find_region(text, search), FoundRegions)
    assert isinstance(nearest_region(text, search), Region | None)


def test_a_megabyte_of_indentations_ends():
    stairs = "".join(" " * depth + f"a{depth}\n" for depth in range(1_400))
    replaced = replace_region(stairs, stairs.replace("a", "  a"), stairs + "x\n" * 300_000)
    assert isinstance(replaced, Replacement | NoMatch)


def test_lines_of_equal_letters_are_compared_in_bounded_time():
    assert nearest_region("\n".join(["jihgfedcba" * 20] * 3_000), "abcdefghij" * 20) is None


def test_the_nearest_region_begins_like_the_search():
    text = "def a():\n    return 1\n\ndef b():\n    return 2\n"
    assert nearest_region(text, "def b():\n    return 3") == Region(4, ("def b():", "    return 2"))
    assert nearest_region(text, "def bb():") == Region(4, ("def b():",))
    assert nearest_region(text, "import os") is None


@pytest.mark.parametrize(
    ("text", "content", "expected"),
    [
        ("a\r\nb\r\n", "x\ny\r\n", "x\r\ny\r\n"),
        ("a\nb\n", "x\r\n", "x\r\n"),
        ("a\r\nb\nc\n", "x\n", "x\n"),
        ("", "x\n", "x\n"),
    ],
)
def test_content_takes_the_line_ends_of_most_lines(text, content, expected):
    assert with_line_ends_of(text, content) == expected
