"""Attributes are checked by two parsers: the faster one accepts nothing that the other refuses. Schemas of tools."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright_values.types import LoopSettings, ToolDescription

from turnwright_core.errors import InvalidError, TurnwrightError
from turnwright_store.domain.checks import check_loop_settings
from turnwright_store.domain.path_state import merge_attributes
from turnwright_store.domain.write_rules import (
    ATTRIBUTES_DEPTH_MAX,
    check_attributes,
    is_valid_by_fast_parser,
    is_valid_object,
)

DOCUMENTS = [
    "{}", '{"a":1}', '{"a" : 1.5E+3}', '{"a":123456789012345678901234567890}', '{"a":"\\ud800"}', '{"a":1e999}',
    "[1]", "1", "", " ", "{", '{"a":NaN}', '{"a":-Infinity}', '{"a":1,}', '{"a":01}', '{"a":+1}', '{"a":.5}', "{'a':1}",
    '{"a":1}x', "\ufeff{}", '{"a":"\x01"}', '{"\x00":1}', '{"a":"\\u00"}', '{"a":1} ', '{"a":"\x7f"}',
    '{"a":' + "[" * 99 + "]" * 99 + "}", '{"a":' + "[" * 100 + "]" * 100 + "}", '{"a":"' + "[" * 300 + '"}',
]  # fmt: skip


@pytest.mark.parametrize("text", DOCUMENTS)
def test_the_faster_parser_takes_nothing_that_the_other_refuses(text):
    assert is_valid_object(text) or not is_valid_by_fast_parser(text)


@given(st.text(alphabet='{}[]":,\\u01eE+-. \ttruefalsnN', max_size=12))
def test_whatever_comes(text):
    assert is_valid_object(text) or not is_valid_by_fast_parser(text)


def test_the_usual_attributes_are_seen_to_be_good_at_once():
    assert is_valid_by_fast_parser('{"tool":"get","ordinal":1,"of":{"path":"a.txt"}}')
    deep = '{"a":' + "[" * ATTRIBUTES_DEPTH_MAX + "]" * ATTRIBUTES_DEPTH_MAX + "}"
    assert not is_valid_by_fast_parser(deep)
    with pytest.raises(TurnwrightError, match="nested at most 100 deep"):
        check_attributes(deep)


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "-0", "1.0", "2e2", "0.1", "-1.5e-7"])
def test_a_merge_keeps_numbers_as_the_standard_library_reads_them(number):
    merged = json.loads(merge_attributes(f'{{"a":{number}}}', '{"b":1}'))
    assert repr(merged) == repr({"a": json.loads(number), "b": 1})


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ('{"type": "array"}', "type `object`"),
        ('{"type": ["object", "null"]}', "type `object`"),
        ('{"type": 5}', "not a JSON Schema"),
        ('{"properties": {"a": {"pattern": "("}}}', "not a JSON Schema"),
        ('{"$ref": "http://127.0.0.1:1/x"}', "nothing is fetched"),
    ],
)
def test_a_clients_tool_takes_an_object_by_a_schema(parameters, said) -> None:
    with pytest.raises(InvalidError, match=said):
        check_loop_settings(LoopSettings(client_tools=[ToolDescription("look", "Looks.", parameters)]))
    tools = [ToolDescription("look", "Looks.", "{}"), ToolDescription("see", "Sees.", '{"type": "object"}')]
    check_loop_settings(LoopSettings(client_tools=tools))
