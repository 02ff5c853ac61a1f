"""Merge patches of attributes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_store.domain.path_state import apply_merge_patch, merge_attributes

# The examples of RFC 7386, appendix A, as far as the patch is an object.
EXAMPLES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=2), VALUES, max_size=4)


@pytest.mark.parametrize(("target", "patch", "result"), EXAMPLES)
def test_the_examples_of_the_standard(target, patch, result):
    assert apply_merge_patch(target, patch) == result


@given(OBJECTS, OBJECTS)
def test_a_patch_is_applied_once_however_often_it_is_applied(target, patch):
    once = merge_attributes(json.dumps(target), json.dumps(patch))
    assert merge_attributes(once, json.dumps(patch)) == once


@given(OBJECTS)
def test_an_empty_patch_keeps_the_very_text(target):
    text = json.dumps(target, indent=1)
    assert merge_attributes(text, "{}") == text


def test_true_is_not_one():
    assert merge_attributes('{"a":1}', '{"a":true}') == '{"a":true}'


def test_half_a_pair_stays_an_escape():
    assert merge_attributes('{"a":"\\ud800"}', '{"b":"é"}') == '{"a":"\\ud800","b":"\\u00e9"}'
