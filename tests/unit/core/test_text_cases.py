"""The corpora on slugs, schemes, tokens and slices of lines."""

import pytest

from cases import params
from turnwright_core.text import LineSlice, count_tokens, scheme_of, slice_lines, slugify


@pytest.mark.parametrize("case", params("rummy/slugify.jsonl"))
def test_slugs_are_as_the_cases_say(case):
    assert slugify(case["input"]["text"]) == case["expected"]


@pytest.mark.parametrize("case", params("rummy/schemeOf.jsonl"))
def test_schemes_are_as_the_cases_say(case):
    assert scheme_of(case["input"]["path"]) == case["expected"]


@pytest.mark.parametrize(
    "case", [case for case in params("rummy/get_partial.jsonl") if "slice" in case.values[0]["expected"]]
)
def test_slices_are_as_the_cases_say(case):
    request, expected = case["input"], case["expected"]
    wanted = LineSlice(expected["slice"], expected["first"], expected["last"], expected["total"])
    assert slice_lines(request["body"], request.get("line"), request.get("limit")) == wanted


@pytest.mark.parametrize("case", params("rummy/countTokens.jsonl"))
def test_tokens_are_as_the_cases_say(case):
    assert count_tokens(case["input"]["text"]) == case["expected"]
