"""Values as they are stored: alone, by a dictionary, or by what another text says already."""

import hashlib

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from turnwright_store.sql.compression import DICTIONARY, compress, compress_against, decompress, decompress_against
from turnwright_store.sql.packets import ReferencedBody, grouped

TEXTS = st.builds(lambda part, times: part * times, st.text(max_size=40), st.integers(0, 200))


@st.composite
def showing(draw):
    """A body, and a text with parts of it between parts of its own."""
    body = draw(TEXTS)
    cut = st.tuples(st.integers(0, len(body)), st.integers(0, len(body))).map(lambda ends: body[min(ends) : max(ends)])
    return "".join(draw(st.lists(st.one_of(st.just(body), cut, st.text(max_size=60)), max_size=6))), body


@given(text=TEXTS)
@example(text="x" * 31)
@example(text="x" * 32)
@example(text="x" * 1023)
@example(text="x" * 1024)
@example(text="x" * 4096)
@example(text="x" * 4097)
def test_a_text_is_read_as_it_was_packed(text):
    stored = compress(text.encode())
    assert decompress(stored).decode() == text
    assert len(stored) <= len(text.encode())


@given(pair=showing())
def test_a_text_is_read_as_it_was_packed_by_a_body(pair):
    """C22: byte for byte, however the text and the body are related."""
    text, body = pair
    shown = f"log://a\n{body}".encode()
    assert decompress_against(compress_against(text.encode(), shown), shown).decode() == text


def test_the_dictionary_stays_as_it_is():
    """What is stored was packed by it: a change would make it unreadable."""
    digest = hashlib.sha256(DICTIONARY).hexdigest()
    assert digest == "1ceed45ad1bf121e85f7c6a7456e32db3c7205bc75d16218f4c8211502315df1"


def test_a_short_value_of_many_is_a_third_as_long():
    request = '{"model":"big","vendor_model":"anthropic/claude","context_length":200000,"temperature":0.7,"tools":["get","set"]}'
    assert len(compress(request.encode())) < len(request) / 3 + 40


@given(pairs=st.lists(showing(), max_size=6), more=st.text(max_size=20))
def test_texts_keep_what_they_need_of_their_bodies(pairs, more):
    """A body may grow at its end."""
    texts = [text for text, _ in pairs]
    shows = {text: f"log://{place}" for place, text in enumerate(texts)}
    bodies = {f"log://{place}": body for place, (_, body) in enumerate(pairs)}
    then = {path: ReferencedBody(place, path, body.encode()) for place, (path, body) in enumerate(bodies.items())}
    now = {
        place: ReferencedBody(place, path, (body + more).encode()) for place, (path, body) in enumerate(bodies.items())
    }
    assert [text for group in grouped(texts, shows, then) for text in group.texts(now)] == texts


def test_another_body_is_refused():
    """What is read is what was sent, or nothing."""
    body = "".join(chr(97 + number * number % 26) for number in range(900))
    stored = compress_against(f"<a>{body}</a>".encode(), body.encode())
    with pytest.raises(zstandard.ZstdError):
        decompress_against(stored, body.upper().encode())


@pytest.mark.parametrize("text", ["<log>{body}</log>", "<log>{body}", "{body}"])
def test_a_text_is_stored_by_a_body_that_it_shows(text):
    body = "".join(f"line {number * 7919 % 1009}\n" for number in range(100))
    whole = text.format(body=body)
    shown = ReferencedBody(7, "log://a", body.encode())
    [group] = grouped([whole], {whole: "log://a"}, {"log://a": shown})
    assert group.references == ((7, len(body)),)
    assert len(group.data) < 60


def test_a_group_ends_when_it_is_long():
    """So that few bodies are in memory at a time."""
    bodies = {f"a{number}": ReferencedBody(number, f"a{number}", b"x" * 30_000) for number in range(5)}
    shows = {f"text {path}": path for path in bodies}
    groups = list(grouped(list(shows), shows, bodies))
    assert [group.versions for group in groups] == [[0, 1, 2], [3, 4]]
