"""Texts as they are stored: alone, or by what another text says already."""

import hashlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from turnwright_store.sql.blocks import ShownBody, block_of
from turnwright_store.sql.packing import PHRASES, packed, packed_by, unpacked, unpacked_by

TEXTS = st.builds(lambda part, times: part * times, st.text(max_size=40), st.integers(0, 200))


@st.composite
def showing(draw):
    """A body, and a text with parts of it between parts of its own."""
    body = draw(TEXTS)
    cut = st.tuples(st.integers(0, len(body)), st.integers(0, len(body))).map(lambda ends: body[min(ends) : max(ends)])
    return "".join(draw(st.lists(st.one_of(st.just(body), cut, st.text(max_size=60)), max_size=6))), body


@given(text=TEXTS)
def test_a_text_is_read_as_it_was_packed(text):
    assert unpacked(packed(text)) == text


@given(pair=showing())
def test_a_text_is_read_as_it_was_packed_by_a_body(pair):
    """C22: byte for byte, however the text and the body are related."""
    text, body = pair
    example = f"log://a\n{body}".encode()
    assert unpacked_by(packed_by(text, example), example) == text


@given(text=TEXTS)
def test_a_text_is_read_as_it_was_packed_by_phrases(text):
    assert unpacked_by(packed_by(text)) == text


def test_the_phrases_stay_as_they_are():
    """What is stored was packed by them: a change would make it unreadable."""
    digest = hashlib.sha256(PHRASES).hexdigest()
    assert digest == "04db40aebe65b1aa7d22d4905faf58560decfad7c94af84832bb34aa55d4d880"


@given(pair=showing(), more=st.text(max_size=20))
def test_a_block_keeps_what_it_needs_of_its_body(pair, more):
    """A body may grow at its end."""
    text, body = pair
    block = block_of(text, ShownBody(7, "log://a", body.encode()))
    grown = (body + more).encode()
    example = b"log://a\n" + grown[: block.body_size_bytes] if block.version_id else b""
    assert unpacked_by(block.text, example) == text


def test_another_example_is_refused():
    """What is read is what was sent, or nothing."""
    body = "".join(chr(97 + number * number % 26) for number in range(900))
    stored = packed_by(f"<a>{body}</a>", body.encode())
    with pytest.raises(zstandard.ZstdError):
        unpacked_by(stored, body.upper().encode())


@pytest.mark.parametrize(
    ("text", "leans"),
    [("<log>{body}</log>", True), ("<log>{body}", True), ("{body}", True), ("no word of it", False), ("", False)],
)
def test_a_text_leans_on_a_body_that_it_shows(text, leans):
    body = "".join(f"line {number * 7919 % 1009}\n" for number in range(100))
    block = block_of(text.format(body=body), ShownBody(7, "log://a", body.encode()))
    assert (block.version_id, block.body_size_bytes) == ((7, len(body)) if leans else (None, 0))
    if leans:
        assert len(block.text) < 60
