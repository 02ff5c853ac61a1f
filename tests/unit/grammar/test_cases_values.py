"""The corpus of broken JSON."""

import pytest

from cases import expect, params
from turnwright_grammar.values import repair_json

DECIDED = {
    "json_args_repair-038": "the last quote before the brace closes the string",
    "json_args_repair-173": "strict JSON but for the newline: the key is kept as written",
    "json_args_repair-170": "a quote in quotes is a value",
}
OPEN = {
    "json_args_repair-017": "a key without a colon",
    "json_args_repair-061": "four quotes where a brace was meant",
    "json_args_repair-065": "JSON inside a string with uneven escapes",
    "json_args_repair-077": "members after the object was closed",
    "json_args_repair-118": "a number after a string without a comma, at the end",
    "json_args_repair-132": "an object cut inside a key",
    "json_args_repair-142": "a word with a closing quote only, in a list",
    "json_args_repair-143": "a word with a closing quote only, in a list",
}


@pytest.mark.parametrize("case", params("grammar/json_args_repair.jsonl"))
def test_broken_json_is_repaired_as_the_cases_say(case):
    value = repair_json(case["input"])
    passed = value == case["expected_value"] and isinstance(value, bool) == isinstance(case["expected_value"], bool)
    expect(case["id"], passed=passed, exceptions=DECIDED | OPEN)
