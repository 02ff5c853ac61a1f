"""Words of texts and queries, and the snippets of texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.limits import SNIPPET_CHARS_MAX
from turnwright_store.domain.lexemes import (
    QUERY_WORDS_MAX,
    WORD_CHARS_MAX,
    fold_case,
    lexemes_of,
    non_ascii_lexemes,
    query_words,
    snippet,
    split_camel_case,
    split_words,
)
from turnwright_store.sql.search import lexemes


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("parseHttpReply", ["parse", "Http", "Reply"]),
        ("HTMLParser2", ["HTML", "Parser", "2"]),
        ("getURL of x", ["get", "URL"]),
        ("plain words and CAPS", []),
        ("snake_case", []),
        ("", []),
    ],
)
def test_a_name_in_camel_case_has_parts(text, parts):
    assert list(split_camel_case(text)) == parts


@pytest.mark.parametrize(("run", "parts"), [("x", 0), ("A", 0), ("7", 0), ("aB", 131_073), ("éx", 0)])
def test_a_long_run_of_letters_is_read_once(run, parts):
    # Reading it again from each of its characters takes minutes, which is longer than a test may.
    long = run * (262_144 // len(run))
    assert sum(1 for _ in split_camel_case(long)) == parts
    assert len(lexemes_of(long)) <= 4


@pytest.mark.parametrize(
    ("text", "plain"), [("Café", "cafe"), ("STRASSE", "strasse"), ("Straße", "strasse"), ("ПРИВЕТ", "привет"), ("", "")]
)
def test_words_are_compared_without_case_and_accents(text, plain):
    assert fold_case(text) == plain


@pytest.mark.parametrize(
    ("name", "lexemes"),
    [
        ("getURL", ("geturl", "get", "url")),
        ("Straße", ("strasse",)),
        ("½", ("1", "2")),
        ("\ufdfa", ("صلى", "الله", "عليه", "وسلم")),
        ("x" * 70, ("x" * 64,)),
    ],
)
def test_words_have_lexemes(name, lexemes):
    assert lexemes_of(name) == lexemes


def test_letters_and_their_accents_are_one_word():
    assert list(split_words("re\u0301sume\u0301, caf\u00e9")) == ["r\u00e9sum\u00e9", "caf\u00e9"]


def test_a_long_run_of_accents_is_read_in_linear_time():
    # Put in their order as a whole, they would take an hour.
    assert list(split_words("a" + "\u0301\u0327" * 500_000 + "b")) == ["\u00e1", "b"]


def test_odd_words_are_those_that_are_not_plain():
    assert list(non_ascii_lexemes(f"plain Words caf\u00e9 {'x' * 65}")) == ["cafe", "x" * 64]


@given(st.lists(st.sampled_from(["plain", "x" * 64, "x" * 65, "aB" * 40, "7" * 66, "_", "-", " ", "caf\u00e9"])))
def test_odd_words_are_found_in_plain_text_as_in_any(pieces):
    text = "".join(pieces)
    odd = (word for word in split_words(text) if len(word) > WORD_CHARS_MAX or not word.isascii())
    assert list(non_ascii_lexemes(text)) == [lexeme for word in odd for lexeme in lexemes_of(word)]


def test_a_query_is_its_words_and_their_parts_each_once():
    assert query_words('parseReply "reply" AND src/a.py parsereply') == [
        "parsereply",
        "parse",
        "reply",
        "AND",
        "src",
        "a",
        "py",
    ]


def test_the_words_of_a_query_are_bounded():
    assert query_words(" ".join(f"w{number}" for number in range(100))) == [
        f"w{number}" for number in range(QUERY_WORDS_MAX)
    ]


def test_lexemes_have_their_positions_and_those_of_the_path_a_mark():
    assert (
        lexemes("src/parseReply.py", "reply to src")
        == "'src':1A,6 'parsereply':2A 'parse':2A 'reply':2A,4 'py':3A 'to':5"
    )


@given(st.text())
def test_a_lexeme_is_letters_and_digits_of_a_bounded_length(text):
    for word in split_words(text):
        for lexeme in lexemes_of(word):
            assert lexeme.isalnum()
            assert len(lexeme) <= WORD_CHARS_MAX


@given(st.text(max_size=3000), st.text(max_size=40))
def test_a_snippet_is_a_short_piece_of_its_text(text, query):
    piece = snippet(text, query_words(query))
    assert len(piece) <= SNIPPET_CHARS_MAX
    assert piece in text


@given(st.text("ab \n", max_size=2000), st.text("ab \n", max_size=2000))
def test_a_snippet_shows_the_word_that_is_there_once(before, after):
    assert "needle" in snippet(f"{before} needle {after}", ["needle"])


def test_a_snippet_prefers_different_words_to_many():
    gap = "- " * 400
    text = f"one one one one {gap} one two {gap} two two two"
    assert "one two" in snippet(text, ["one", "two"])


def test_a_snippet_without_a_place_is_the_beginning():
    assert snippet("begin " * 200, ["absent"]).startswith("begin begin")
