"""Differences of sequences: what they say, and that they say everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.delta_encoding import Copied, DeltaEncoder, common_run_length, decode

items = st.lists(st.integers(1, 30), max_size=40)


@pytest.mark.parametrize(
    ("base", "sequence", "parts"),
    [
        ("", "ab", ["a", "b"]),
        ("abcd", "abcd", [Copied(0, 4)]),
        ("abcd", "abxcd", [Copied(0, 2), "x", Copied(2, 2)]),
        ("abcd", "abxd", [Copied(0, 2), "x", Copied(3, 1)]),
        ("abcd", "abcdef", [Copied(0, 4), "e", "f"]),
        ("abcd", "abd", [Copied(0, 2), Copied(3, 1)]),
        (range(40), [*range(20, 40), *range(20)], [Copied(20, 20), Copied(0, 20)]),
        ("abcd", "cdab", [Copied(2, 2), "a", "b"]),
        ("abab", "abab", [Copied(0, 4)]),
    ],
)
def test_what_stands_in_the_base_is_named_by_its_place(base, sequence, parts):
    assert list(DeltaEncoder(base).encode(sequence)) == parts


@given(items, st.lists(items, max_size=3))
def test_the_parts_make_the_sequences_again(base, sequences):
    differences = DeltaEncoder(base)
    assert [decode(differences.encode(each), base) for each in sequences] == sequences


def test_a_place_beyond_the_base_is_an_error():
    with pytest.raises(IndexError):
        decode([Copied(1, 2)], [1, 2])


@pytest.mark.parametrize("same", [0, 1, 255, 256, 257, 600])
def test_a_long_run_is_measured_to_the_item(same):
    base = tuple(range(same))
    for more in ((), ("x",), ("x", "y")):
        assert common_run_length((*base, *more), (*base, "z")) == same
        assert common_run_length((0, *base, *more), (*base, "z"), 1) == same
