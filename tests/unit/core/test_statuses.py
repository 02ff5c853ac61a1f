"""The status of an entry, derived from its state and outcome. Rows RU056, RU062; decisions C10, C26."""

import pytest
from turnwright_values.types import State

from turnwright_core.runs import LOOP_ENDED, RUN_TRANSITIONS, run_status_after
from turnwright_core.value_methods import status_of


def test_every_status_is_from_100_to_599() -> None:
    """RU062: whatever stands in an outcome."""
    codes = [*range(-1, 1200), "\u0664\u0660\u0664", "4\u00b24", " 404", "404 ", ""]
    found = {status_of(state, f"word:{code}") for state in State for code in codes}
    assert (min(found), max(found)) == (100, 599)


@pytest.mark.parametrize(
    ("state", "outcome", "status"),
    [
        (State.FAILED, "not_found:404", 404),
        (State.FAILED, "", 500),
        (State.FAILED, "odd:600", 500),
        (State.FAILED, "odd:099", 500),
        (State.FAILED, "odd:\u0664\u0660\u0664", 500),
        (State.CANCELLED, "aborted:499", 499),
        (State.CANCELLED, "odd:999", 499),
        (State.RESOLVED, "conflict:409", 200),
    ],
)
def test_the_code_of_an_outcome_counts_where_it_is_one(state: State, outcome: str, status: int) -> None:
    assert status_of(state, outcome) == status


def test_a_run_gets_a_status_that_runs_have_whatever_its_loop_ended_with():
    assert {run_status_after(status, "") for status in LOOP_ENDED} <= set(RUN_TRANSITIONS)
