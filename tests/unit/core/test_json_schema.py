"""Which schemas are refused before a model is asked for an answer. Row OM03; settings.proto."""

from __future__ import annotations

import json

import pytest

from turnwright_core.json_schema import check_schema


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
        {"anyOf": [{"$ref": "#"}, {"type": "object"}]},
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
