"""Which schemas are refused before a model is asked for an answer. Row OM03; settings.proto."""

from __future__ import annotations

import json

import pytest

from turnwright_core.json_schema import answer_problem, check_schema


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
        {"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}},
        {
            "$id": "http://x/",
            "$defs": {"a": {"$id": "b", "properties": {"c": {"$ref": "#/$defs/d"}}, "$defs": {"d": {}}}},
        },
        {"$id": "http://x/", "$ref": "b", "$defs": {"a": {"$id": "b"}}},
        {"properties": {"$ref": {"type": "string"}}},
        {"const": {"$ref": "#/gone"}, "enum": [{"$ref": "no"}], "default": {"$ref": ""}, "examples": [{"$ref": "x:"}]},
        {"anyOf": [{"type": "object"}, {"$ref": "#"}]},
    ],
    ids=json.dumps,
)
def test_a_schema_may_refer_to_its_parts(schema) -> None:
    check_schema(json.dumps(schema))


@pytest.mark.parametrize(
    "reference", ["#/gone", "#gone", "gone.json", "http://127.0.0.1:1/x", "file:///etc/passwd", "x:y"]
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_to_what_a_schema_does_not_have_is_refused_with_its_name(reference, keyword) -> None:
    with pytest.raises(ValueError, match="nothing is fetched") as refused:
        check_schema(json.dumps({"properties": {"a": {"anyOf": [{keyword: reference}]}}}))
    assert reference in str(refused.value)


ENDLESS = [
    {"$ref": "#"},
    {"allOf": [{"$ref": "#"}]},
    {"oneOf": [{"type": "object"}, {"$ref": "#"}]},
    {"anyOf": [{"$ref": "#"}, {"type": "object"}]},
    {"not": {"$ref": "#"}},
    {"if": {"$ref": "#"}, "then": {}},
    {"dependentSchemas": {"a": {"$ref": "#"}}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"$dynamicAnchor": "me", "$dynamicRef": "#me"},
    {"$id": "https://example.org/a", "$ref": "https://example.org/a"},
]


@pytest.mark.parametrize(
    ("items", "is_unique"),
    [
        ([{"x": 1, "y": [2]}, {"y": [2.0], "x": 1}], False),
        ([1, 1.0], False),
        ([1, True, "1", None, "null", [1], {"1": 1}], True),
        ([{"x": number} for number in range(2000)], True),
        ([], True),
    ],
)
def test_items_are_compared_as_numbers_and_without_regard_to_order(items, is_unique):
    schema = json.dumps({"type": "object", "properties": {"a": {"uniqueItems": True}}})
    problem = answer_problem(schema, json.dumps({"a": items}))
    assert ("non-unique" in problem) is not is_unique
    assert answer_problem(schema.replace("true", "false"), json.dumps({"a": items})) == ""


@pytest.mark.parametrize("schema", ENDLESS, ids=json.dumps)
def test_a_schema_that_applies_itself_to_the_same_value_is_refused(schema):
    with pytest.raises(ValueError, match="without an end"):
        check_schema(json.dumps({"type": "object", **schema}))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"next": {"$ref": "#"}}},
        {"properties": {"all": {"items": {"$ref": "#"}}}},
        {"additionalProperties": {"anyOf": [{"type": "string"}, {"$ref": "#"}]}},
        {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "object"}}},
        {"patternProperties": {"^x": {"$ref": "#"}}},
    ],
    ids=json.dumps,
)
def test_a_schema_of_a_tree_is_taken(schema):
    text = json.dumps({"type": "object", **schema})
    check_schema(text)
    assert answer_problem(text, '{"next": {"next": {}}, "x": {}}') == ""


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("schema", ['{"type": "object", "maxProperties": %s}', '{"default": {"a": [%s]}}'])
def test_a_schema_with_a_number_that_json_does_not_have_is_refused(number, schema):
    with pytest.raises(ValueError, match="not JSON"):
        check_schema(schema % number)


SLOW = {
    "one pattern": ({"properties": {"a": {"pattern": "(a|a)*$"}}}, {"a": "a" * 64 + "!"}),
    "a pattern of names": ({"patternProperties": {"^(a|a)*$": {}}}, {"a" * 64 + "!": 1}),
    "patterns beside other names": (
        {"patternProperties": {"^(a|a)*$": {}}, "additionalProperties": False}, {"a" * 64 + "!": 1}
    ),
    "a pattern in a schema of another draft": (
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(a|a)*$"}}},
        {"a": "a" * 64 + "!"},
    ),
    "a pattern behind a reference to a schema of another draft": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"b": {"$ref": "#"}, "a": {"pattern": "(a|a)*$"}},
        },
        {"b": {"a": "a" * 64 + "!"}},
    ),
    "a pattern and many texts": (
        {"additionalProperties": {"pattern": "(a|a)*$"}}, {f"{number}": "a" * 64 + "!" for number in range(200)}
    ),
    "references that double": (
        {
            "$ref": "#/$defs/d0",
            "$defs": {
                **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}, "d40": {"type": "object"},
            },
        },
        {},
    ),
    "many texts and as many alternatives": (
        {"properties": {"a": {"items": {"anyOf": [{"const": f"{number}"} for number in range(2000)]}}}},
        {"a": ["1999"] * 2000},
    ),
}  # fmt: skip


def test_a_pattern_that_other_engines_are_slow_with_is_decided():
    text = json.dumps({"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}})
    assert "does not match" in answer_problem(text, json.dumps({"a": "a" * 64 + "!"}))
    assert answer_problem(text, json.dumps({"a": "a" * 64})) == ""


@pytest.mark.parametrize("name", SLOW)
def test_what_a_schema_takes_of_time_is_bounded(name):
    schema, answer = SLOW[name]
    text = json.dumps({"type": "object", **schema})
    check_schema(text, 60.0)
    assert "took too long" in answer_problem(text, json.dumps(answer), 0.1)


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"z": {"$anchor": "a"}, **{f"{n}": {"$ref": "#a"} for n in range(8000)}}},
        {"properties": {f"{n}": {} for n in range(20_000)}},
        {"anyOf": [True] * 40_000},
    ],
    ids=["anchors", "properties", "alternatives"],
)
def test_a_schema_that_takes_too_long_to_check_is_refused(schema):
    with pytest.raises(ValueError, match="takes too long to check: make it smaller"):
        check_schema(json.dumps({"type": "object", **schema}), 0.1)


def test_names_beside_patterns_are_told():
    schema = {"patternProperties": {"^a": {"type": "string"}}, "properties": {"b": {}}, "additionalProperties": False}
    text = json.dumps({"type": "object", **schema})
    assert answer_problem(text, '{"a1": "x", "b": 1}') == ""
    assert "'c' was unexpected" in answer_problem(text, '{"a1": "x", "b": 1, "c": 1}')
    assert "not of type 'string'" in answer_problem(text, '{"a1": 1}')
    text = json.dumps({"type": "object", **schema, "additionalProperties": {"type": "number"}})
    assert answer_problem(text, '{"a1": "x", "c": 1}') == ""
    assert "At $.c" in answer_problem(text, '{"a1": "x", "c": "x"}')
    with pytest.raises(ValueError, match="write `additionalProperties`"):
        check_schema(json.dumps({"type": "object", "patternProperties": {"a": {}}, "unevaluatedProperties": False}))
    escaped = r'{"type": "object", "patternProperties": {"a": {}}, "unevalu\u0061tedProperties": false}'
    with pytest.raises(ValueError, match="write `additionalProperties`"):
        check_schema(escaped)


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"$ref": "#/title"}},
        {"a": {"$ref": "#/minProperties"}},
        {"a": {"$dynamicRef": "#/required"}},
        {"default": {"$ref": "#/gone"}},
        {"enum": {"$ref": "http://127.0.0.1:1/x"}},
    ],
    ids=json.dumps,
)
def test_a_reference_to_what_is_no_schema_is_told_and_raises_nothing(properties):
    text = json.dumps({"type": "object", "title": "a", "minProperties": 1, "required": [], "properties": properties})
    check_schema(text)
    assert "The schema cannot be applied" in answer_problem(text, json.dumps({"a": 1, "default": 1, "enum": 1}))
