"""The corpora on patterns: `rummy/patterns.jsonl`, `rummy/pattern_ops.jsonl`."""

import pytest

from cases import expect, params
from turnwright_core.patterns.matching import find, match, replace, search

DECIDED = {
    "pat-024": "RU273: match is a full match for regexes too",
}


def answered(request: dict) -> object:
    pattern, string = request["pattern"], request["string"]
    if request["fn"] == "match":
        return match(pattern, string)
    if request["fn"] == "search":
        return search(pattern, string), find(pattern, string)
    return replace(pattern, request["replacement"], string)


@pytest.mark.parametrize("case", params("rummy/patterns.jsonl"))
def test_patterns_answer_as_the_cases_say(case):
    expected, answer = case["expected"], answered(case["input"])
    if isinstance(expected, dict):
        found, part = answer
        answer = {"found": found} | ({"match": part} if "match" in expected else {})
    expect(case["id"], passed=answer == expected, exceptions=DECIDED)


@pytest.mark.parametrize("case", params("rummy/pattern_ops.jsonl"))
def test_patterns_select_the_paths_of_the_cases(case):
    paths = dict(case["input"]["seed"])
    for operation in case["input"].get("ops", [case["input"].get("query")]):
        chosen = {path for path in paths if match(operation["path"], path)}
        if operation.get("body"):
            chosen = {path for path in chosen if search(operation["body"], paths[path])}
        expected = case["expected"]
        if "paths_left" in expected:
            assert set(paths) - chosen == set(expected["paths_left"])
        else:
            (wanted,) = expected.values()
            assert chosen == set(wanted)
