"""tests/mutants.toml can be used: each mutant has its place, and a row that is proven."""

import pytest

from mutants import read_mutants, read_tests


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda mutant: mutant.row)
def test_a_mutant_has_one_place_and_a_row_that_names_tests(mutant):
    assert mutant.problem() == ""
    assert read_tests()[mutant.row]
    assert mutant.new != mutant.old
