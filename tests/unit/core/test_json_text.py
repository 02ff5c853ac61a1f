"""JSON is read as the standard library reads it, whichever parser does it."""

import json

import pytest

from turnwright_core.json_text import parse_json

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "text",
    ['"\\ud800"', '"\ud800"', "NaN", "-Infinity", "1e400", "-0", "1" * 30, "0.1", '{"a":1,"a":2}', ' ["\\u0000"]\n'],
)
def test_a_value_is_that_of_the_standard_library(text):
    assert repr(parse_json(text)) == repr(json.loads(text))


@pytest.mark.parametrize(
    ("text", "error"), [("", ValueError), ("{} x", ValueError), ('"a\nb"', ValueError), (DEEP, RecursionError)]
)
def test_what_is_no_json_is_refused(text, error):
    with pytest.raises(error):
        parse_json(text[:60_000])
