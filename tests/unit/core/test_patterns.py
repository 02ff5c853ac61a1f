"""Facts about patterns, and that hostile ones end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.patterns import PatternError, Shape, find, match, replace, search, shape_of


@pytest.mark.parametrize(
    ("pattern", "shape"),
    [
        ("src/*.py", Shape.GLOB),
        ("a?.txt", Shape.GLOB),
        ("{a,b}.py", Shape.GLOB),
        ("!(a).py", Shape.GLOB),
        ("known://*", Shape.GLOB),
        ("/\\d+/", Shape.REGEX),
        ("/a|b/i", Shape.REGEX),
        ("/srv/app/", Shape.LITERAL),
        ("/srv/app/i", Shape.LITERAL),
        ("//item", Shape.LITERAL),
        ("a.py", Shape.LITERAL),
        (":x[]", Shape.LITERAL),
        ("", Shape.LITERAL),
    ],
)
def test_the_shape_decides_the_kind(pattern, shape):
    assert shape_of(pattern) is shape


@pytest.mark.parametrize(
    ("pattern", "string", "fits"),
    [
        ("*.py", "a/b.py", False),
        ("**/*.py", "a/b/c.py", True),
        ("**/*.py", "c.py", True),
        ("src/**", "src/a/b", True),
        ("known://*", "known://a/b", True),
        ("{known,unknown}://*", "unknown://a/b", True),
        ("*", ".env", False),
        ("!(a).py", "b.py", True),
        ("!(a).py", "a.py", False),
        ("!*.py", "a.ts", True),
        ("!*.py", "a.py", False),
        ("src/[id].tsx", "src/[id].tsx", True),
        ("[abc].py", "b.py", True),
        ("/a.c/", "abc", True),
        ("/a.c/", "xabcx", False),
        ("/ABC/i", "abc", True),
        ("A.py", "a.py", False),
        ("a.py", "a.py", True),
        ("a.py", "axpy", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_match_takes_the_whole_string(pattern, string, fits):
    assert match(pattern, string) is fits


def test_nothing_fits_an_absent_string():
    assert (match("*", None), search("*", None)) == (False, False)


def test_search_finds_a_part():
    assert (find("/b+/", "abbc"), search("bb", "abbc"), search("x", "abbc")) == ("bb", True, False)


def test_replace_takes_every_literal_and_the_first_regex_match():
    assert replace("a", "b", "aa") == "bb"
    assert replace("/a/", "b", "aa") == "ba"
    assert replace("/a/g", "b", "aa") == "bb"


def test_a_replacement_refers_to_the_groups_of_a_regex():
    assert replace("/(\\w) (?<last>\\w)/", "$<last> $1 $& $$ $9", "a b") == "b a a b $ $9"


def test_a_literal_replacement_is_text():
    assert replace("a.b", "$1\\1", "a.b") == "$1\\1"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("/(/", "invalid_regex"),
        ("/*/", "invalid_regex"),
        ("/(((a{1,1000}){1,1000}){1000})/", "too_large"),
        ("{a,b}" * 20 + "*", "invalid_glob"),
        ("{1..1000000000}*", "invalid_glob"),
        ("*" * 501, "too_long"),
    ],
)
def test_a_bad_pattern_gives_a_reason(pattern, reason):
    with pytest.raises(PatternError) as caught:
        match(pattern, "x")
    assert caught.value.reason == reason


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 100,
        "/(a+)+$/",
        "/(a|aa)+$/",
        "/(.*)*x/",
        "!(" * 160 + ")" * 160,
        "**/" * 160 + "x",
        "[" * 100_000,
        "/" + "a" * 490 + "/",
        "a" * 490 + "*",
    ],
)
@pytest.mark.parametrize("run", [match, search])
def test_a_hostile_pattern_ends(pattern, run):
    try:
        answer = run(pattern, "a" * 3000 + "b")
    except PatternError as error:
        answer = error.reason
    assert answer in (True, False, "timeout", "invalid_glob", "invalid_regex")


@given(st.text(alphabet="*?[]{}!()/\\ab.,:^$+|", max_size=30), st.text(alphabet="ab/.:", max_size=20))
def test_any_pattern_answers_or_says_why(pattern, string):
    for run in (match, search):
        try:
            assert isinstance(run(pattern, string), bool)
        except PatternError as error:
            assert error.reason  # noqa: PT017
