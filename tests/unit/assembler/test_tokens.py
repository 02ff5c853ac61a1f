import pytest

from cases import load_cases
from turnwright_assembler.domain.account import ceiling_of
from turnwright_assembler.domain.ladder import TokenBudget
from turnwright_core.text import tokens_of

BUDGET = load_cases("rummy/budget.jsonl")
# Decisions C15, C16 and C24 override these; the size gate of known:// is the executor's.
ELSEWHERE = {"bud-015": "C24", "bud-018": "C17", "bud-019": "C17", "bud-020": "C24", "bud-021": "C24"}
CEILINGS = [case for case in BUDGET if case["id"] not in ELSEWHERE and "message_chars" not in case["input"]]
MESSAGES = [case for case in BUDGET if case["id"] not in ELSEWHERE and "message_chars" in case["input"]]


def ids(cases):
    return [case["id"] for case in cases]


# RU212
@pytest.mark.parametrize("case", CEILINGS, ids=ids(CEILINGS))
def test_the_ceiling_is_nine_tenths_of_the_window_rounded_down(case):
    assert ceiling_of(case["input"]["context_size"], 0.9) == case["expected"]["ceiling"]


# RU212
def test_the_ceiling_is_exact_where_a_float_is_not():
    assert [ceiling_of(10, ratio) for ratio in (0.1, 0.3, 0.7, 1.0)] == [1, 3, 7, 10]
    assert ceiling_of(100, 0.57) == 57
    assert int(100 * 0.57) == 56


# RU213
@pytest.mark.parametrize("case", MESSAGES, ids=ids(MESSAGES))
def test_a_packet_up_to_the_ceiling_passes(case):
    ceiling = ceiling_of(case["input"]["context_size"], 0.9)
    tokens = sum(tokens_of(chars, 2) for chars in case["input"]["message_chars"])
    expected = case["expected"]
    assert (ceiling, tokens) == (expected["ceiling"], expected["tokens"])
    assert TokenBudget(ceiling).excess(tokens) == expected["overflow"]
    assert (expected["status"] == 413) is (TokenBudget(ceiling).excess(tokens) > 0)


def test_calibration_gives_back_what_the_vendor_reported():
    for estimate, reported in ((300, 100), (3, 5), (10, 11), (7, 7), (100_000, 131_313)):
        assert TokenBudget(1, reported / estimate).expected(estimate) == reported


def test_an_unknown_calibration_counts_as_one():
    assert TokenBudget(100, 0.0).expected(90) == 90
