"""Attributes are checked by two parsers: the faster one accepts nothing that the other refuses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.errors import TurnwrightError
from turnwright_store.domain import checks
from turnwright_store.domain.checks import ATTRIBUTES_DEPTH_MAX, check_attributes
from turnwright_store.domain.merging import merge_attributes

DOCUMENTS = [
    "{}", '{"a":1}', '{"a" : 1.5E+3}', '{"a":123456789012345678901234567890}', '{"a":"\\ud800"}', '{"a":1e999}',
    "[1]", "1", "", " ", "{", '{"a":NaN}', '{"a":-Infinity}', '{"a":1,}', '{"a":01}', '{"a":+1}', '{"a":.5}', "{'a':1}",
    '{"a":1}x', "\ufeff{}", '{"a":"\x01"}', '{"\x00":1}', '{"a":"\\u00"}', '{"a":1} ', '{"a":"\x7f"}',
    '{"a":' + "[" * 99 + "]" * 99 + "}", '{"a":' + "[" * 100 + "]" * 100 + "}", '{"a":"' + "[" * 300 + '"}',
]  # fmt: skip


def refusal(text):
    try:
        check_attributes(text)
    except TurnwrightError as error:
        return error.message
    return None


def both(text, monkeypatch):
    fast = refusal(text)
    monkeypatch.setattr(checks, "_is_plainly_good", lambda _: False)
    return fast, refusal(text)


@pytest.mark.parametrize("text", DOCUMENTS)
def test_both_parsers_say_the_same(text, monkeypatch):
    fast, slow = both(text, monkeypatch)
    assert fast == slow


@given(st.text(alphabet='{}[]":,\\u01eE+-. \ttruefalsnN', max_size=12))
def test_both_say_the_same_of_whatever_comes(text):
    with pytest.MonkeyPatch.context() as patch:
        fast, slow = both(text, patch)
    assert fast == slow


def test_the_usual_attributes_never_reach_the_slower_one(monkeypatch):
    monkeypatch.setattr(checks.json, "loads", lambda *_, **__: pytest.fail("the slower parser was asked"))
    check_attributes('{"tool":"get","ordinal":1,"of":{"path":"a.txt"}}')
    with pytest.raises(pytest.fail.Exception):
        check_attributes('{"a":' + "[" * ATTRIBUTES_DEPTH_MAX + "]" * ATTRIBUTES_DEPTH_MAX + "}")


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "-0", "1.0", "2e2", "0.1", "-1.5e-7"])
def test_a_merge_keeps_numbers_as_the_standard_library_reads_them(number):
    merged = json.loads(merge_attributes(f'{{"a":{number}}}', '{"b":1}'))
    assert repr(merged) == repr({"a": json.loads(number), "b": 1})
