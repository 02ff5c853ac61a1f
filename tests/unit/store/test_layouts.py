"""Layouts of packets: what a difference says, and that it says everything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_store.domain.packets import (
    decode_layout,
    encode_layout,
    layout_ids,
    own_blocks,
    piece_id,
    piece_turn_and_index,
)

texts = st.builds(piece_id, st.integers(1, 4), st.integers(0, 9))
ids = st.lists(st.integers(1, 30) | texts, max_size=40)
layouts = st.lists(st.tuples(st.sampled_from(["system", "user"]), ids.map(tuple)), max_size=4).map(tuple)


@pytest.mark.parametrize(
    ("layout", "base", "text"),
    [
        ((), (), ""),
        ((("system", ()),), (), "system"),
        ((("system", (3, 4, 5, 9)), ("user", (7,))), (), "system 3-5 9;user 7"),
        ((("system", (1, 2)), ("user", (3, 4))), (1, 2, 3, 4), "system +0:2;user +2:2"),
        ((("user", (1, 2, 50, 4)),), (1, 2, 3, 4), "user +0:2 50 +3:1"),
        ((("user", (1, 50, 51, 2, 3)),), (1, 2, 3), "user +0:1 50-51 +1:2"),
        ((("user", (3, 1, 2)),), (1, 2, 3), "user +2:1 +0:2"),
        ((("user", (9, 1, 9, 2, 9, 8, 9)),), (9, 1, 9, 2, 9, 3, 9), "user +0:5 8 +6:1"),
        (
            (("user", (7, *(piece_id(17, place) for place in (0, 1, 2, 4)), piece_id(18, 5))),),
            (),
            "user 7 17.0-2 17.4 18.5",
        ),
    ],
)
def test_a_layout_is_written_by_what_differs(layout, base, text):
    assert encode_layout(layout, base) == text
    assert decode_layout(text, base) == layout


@given(layouts, ids)
def test_a_written_layout_is_read_back(layout, base):
    text = encode_layout(layout, base)
    assert decode_layout(text, base) == layout
    assert own_blocks(text) == {piece for piece in layout_ids(layout) if piece > 0} - set(base)


@pytest.mark.parametrize(("turn", "place"), [(1, 0), (1, 99_999), (2**31, 7)])
def test_the_number_of_a_text_says_its_turn_and_place(turn, place):
    assert piece_id(turn, place) < 0
    assert piece_turn_and_index(piece_id(turn, place)) == (turn, place)
