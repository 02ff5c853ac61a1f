"""Facts about slugs and slices of lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.text import LineSlice, count_tokens, scheme_of, slice_lines, slugify


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("", ""),
        (" , ", ""),
        ("a b,, c/", "a_b/c"),
        ("é", "%C3%A9"),
        ("\ud800", "%3F"),
        ("a" * 79 + "éé", "a" * 79 + "%C3%A9"),
    ],
)
def test_a_slug_is_encoded_after_the_cut(text, slug):
    assert slugify(text) == slug


@pytest.mark.parametrize(
    ("path", "scheme"), [("http://a", "http"), ("://a", None), ("a b://c", None), ("1a://c", None)]
)
def test_a_scheme_needs_its_slashes_and_a_letter(path, scheme):
    assert scheme_of(path) == scheme


def test_a_final_newline_begins_no_line():
    assert slice_lines("a\nb\n") == LineSlice("a\nb", 1, 2, 2)


@pytest.mark.parametrize(
    ("line", "limit", "expected"),
    [
        (0, None, ("a\nb\nc", 1, 3)),
        (2, 1, ("b", 2, 2)),
        (9, 2, ("", 4, 3)),
        (None, -2, ("b\nc", 2, 3)),
        (-1, None, ("c", 3, 3)),
        (-9, 1, ("a", 1, 1)),
        (2, 0, ("", 2, 1)),
        (2, -1, ("", 2, 1)),
    ],
)
def test_slices_are_clamped(line, limit, expected):
    assert slice_lines("a\nb\nc", line, limit) == LineSlice(*expected, 3)


@given(st.text(alphabet="ab\n\r"), st.none() | st.integers(-20, 20), st.none() | st.integers(-20, 20))
def test_a_slice_holds_the_lines_it_names(body, line, limit):
    cut = slice_lines(body, line, limit)
    whole = slice_lines(body)
    assert cut.text == "\n".join(whole.text.split("\n")[cut.first - 1 : cut.last])
    assert (cut.total, 1 <= cut.first <= cut.total + 1, cut.last - cut.first >= -1) == (whole.total, True, True)


@pytest.mark.parametrize(("text", "divisor", "tokens"), [("", 2, 0), ("a", 2, 1), ("😀😀", 2, 1), ("aaaaa", 4, 2)])
def test_tokens_are_code_points_over_the_divisor_rounded_up(text, divisor, tokens):
    assert count_tokens(text, divisor) == tokens
