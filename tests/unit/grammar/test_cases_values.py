"""The corpus of broken JSON."""

import pytest

from cases import expect, params
from turnwright_grammar.values.repair import repair_json

DECIDED = {
    "json_args_repair-038": "of quotes inside a string the one before the brace closes it, as in the case 168",
    "json_args_repair-132": "a key that the end cut off names nothing; it is no set of its own",
}


@pytest.mark.parametrize("case", params("grammar/json_args_repair.jsonl"))
def test_broken_json_is_repaired_as_the_cases_say(case):
    value = repair_json(case["input"])
    passed = value == case["expected_value"] and isinstance(value, bool) == isinstance(case["expected_value"], bool)
    expect(case["id"], passed=passed, exceptions=DECIDED)
