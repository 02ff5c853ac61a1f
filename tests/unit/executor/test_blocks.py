"""Blocks of packets: joined they are the packet, and neighbours share them."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from turnwright_executor.domain.blocks import blocks_of


def element(number: int) -> str:
    return f'<known path="known://fact_{number}" turn="{number}">{"what was found out " * 5}{number}</known>\n'


def test_each_element_is_a_block():
    text = "".join(map(element, range(3)))
    assert [block.text for block in blocks_of(text)] == [element(0), element(1), element(2)]


def test_a_packet_that_grew_shares_the_blocks_it_had():
    before = {block.digest for block in blocks_of("".join(map(element, range(20))))}
    after = {block.digest for block in blocks_of("".join(map(element, range(21))))}
    assert before < after
    assert len(after - before) == 1


def test_short_elements_share_a_block():
    blocks = blocks_of("<a>1</a>\n<b>2</b>\n" + element(1))
    assert len(blocks) == 1


def test_an_empty_text_has_no_block():
    assert blocks_of("") == []


@given(st.lists(st.sampled_from(["<get ", "\n", "\n<", "x" * 70, "é", "</get>"]), max_size=60).map("".join))
def test_the_blocks_joined_are_the_text(text):
    blocks = blocks_of(text)
    assert "".join(block.text for block in blocks) == text
    assert all(block.digest == hashlib.sha256(block.text.encode()).digest() for block in blocks)
