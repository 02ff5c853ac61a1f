"""Attributes as text: whatever a tool says, in one compact form."""

import json

import pytest

from turnwright_core.value_methods import to_attributes_json

SAID = {
    "plain": {"tool": "get", "target": "a.txt", "n": {"list": [1, 2.5, True]}},
    "not ascii": {"é": '\N{SNOWMAN}\u2028\x00\x7f"\\/'},
    "half a character": {"a": "\ud800"},
    "large number": {"a": 2**80, "b": -(2**70)},
    "nothing": {"a": None, "b": [None]},
    "tuples and numbers as keys": {"a": (1, 2), 3: "b"},
    "not finite": {"a": float("inf"), "b": [float("-inf")]},
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_the_text_says_what_was_said(said):
    text = to_attributes_json(said)
    assert json.loads(text) == json.loads(json.dumps(said))
    assert (": " in text, ", " in text) == (False, False)


def test_what_is_not_a_number_does_not_become_nothing():
    assert to_attributes_json({"a": float("nan")}) == '{"a":NaN}'


def test_what_json_cannot_say_is_refused():
    with pytest.raises(TypeError):
        to_attributes_json({"a": object()})
