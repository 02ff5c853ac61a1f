"""Which tests `make test` runs, and what is said of those that it leaves out."""

import re
from types import SimpleNamespace

import pytest

from needs import need_of
from quick import CASES, SERVED_CASES, TESTS, is_quick, some_of
from surroundings import TOLD

READ = re.compile(r"environ(?:\.get)?[(\[]\"(TURNWRIGHT_\w+)\"")
OUR_OWN = {"TURNWRIGHT_HOME", "TURNWRIGHT_TOKEN"}
"""What tests set for processes that they start."""
PROOFS = frozenset({"tests/contract/store/test_x.py::test_row", "tests/crash/test_x.py::test_row"})


@pytest.mark.parametrize(
    ("nodeid", "marks", "expected"),
    [
        ("tests/unit/core/test_x.py::test_a", (), True),
        ("tests/architecture/test_x.py::test_a[b]", (), True),
        ("tests/unit/core/test_x.py::test_a", ("slow",), False),
        ("tests/contract/store/test_x.py::test_a", (), False),
        ("tests/contract/store/test_x.py::test_row", (), True),
        ("tests/contract/store/test_x.py::test_row[sqlite]", (), True),
        ("tests/contract/store/test_x.py::test_row", ("slow",), False),
        ("tests/crash/test_x.py::test_row", (), False),
    ],
)
def test_a_test_is_quick_by_where_it_stands_or_what_it_proves(nodeid, marks, expected):
    path = TESTS.parent / nodeid.partition("::")[0]
    item = SimpleNamespace(nodeid=nodeid, path=path, get_closest_marker=lambda name: name in marks)
    assert is_quick(item, PROOFS) == expected


@pytest.mark.parametrize(("folder", "most"), [("unit", CASES), ("contract", SERVED_CASES)])
def test_of_a_long_table_it_runs_cases_from_the_first_to_the_last_and_those_that_a_row_names(folder, most):
    path = TESTS / folder / "test_x.py"
    cases = [SimpleNamespace(nodeid=f"{path}::test_row[{case}]", path=path) for case in range(500)]
    assert some_of(cases[:most], ()) == cases[:most]
    spread = some_of(cases, ())
    assert (len(spread), spread[0], spread[-1]) == (most, cases[0], cases[-1])
    assert some_of(cases, {cases[7].nodeid}) == sorted([*spread, cases[7]], key=cases.index)


@pytest.mark.parametrize(
    ("reason", "need"),
    [
        ("Skipped: needs PostgreSQL: set it", "PostgreSQL"),
        ("needs the cases in ../shared: there is no /x: y", "the cases in ../shared"),
        ("Skipped: a file has one store", ""),
    ],
)
def test_what_a_skipped_test_needs_is_in_its_reason(reason, need):
    assert need_of(reason) == need


def test_what_tests_are_told_by_variables_reaches_them():
    read = {name for file in TESTS.rglob("*.py") for name in READ.findall(file.read_text())}
    assert "TURNWRIGHT_TEST_POSTGRES" in read
    assert {name for name in read - OUR_OWN if not name.startswith(TOLD)} == set()
