"""Which tests `make test` runs, and what is said of those that it leaves out."""

import re
from types import SimpleNamespace

import pytest

from needs import need_of
from quick import CASES, TESTS, Once, is_quick, pytest_thin_tables, some_of
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


def test_of_a_long_table_it_runs_cases_from_the_first_to_the_last_and_those_that_a_row_names():
    cases = [SimpleNamespace(nodeid=f"tests/unit/test_x.py::test_row[{case}]") for case in range(500)]
    assert some_of(cases[:CASES], (), CASES) == cases[:CASES]
    spread = some_of(cases, (), CASES)
    assert (len(spread), spread[0], spread[-1]) == (CASES, cases[0], cases[-1])
    assert some_of(cases, {cases[7].nodeid}, CASES) == sorted([*spread, cases[7]], key=cases.index)


@pytest.mark.parametrize(("folder", "of_sqlite"), [("contract", (0, 3, 6, 9)), ("unit", range(10))])
def test_of_a_long_table_with_services_it_runs_some_cases_on_each_database(folder, of_sqlite):
    items = [Item(folder, f"test_a[{db}-{case}]", db) for db in ("sqlite", "postgresql") for case in range(10)]
    pytest_thin_tables(items)
    kept = [item.nodeid.partition("::")[2] for item in items if not item.marks]
    of_postgresql = [f"test_a[postgresql-{case}]" for case in (0, 3, 6, 9)]
    assert kept == [*(f"test_a[sqlite-{case}]" for case in of_sqlite), *of_postgresql]


class Item:
    """A test that remembers its marks."""

    def __init__(self, folder, name, db):
        self.path = TESTS / folder / "test_x.py"
        self.nodeid = f"tests/{folder}/test_x.py::{name}"
        self.callspec = SimpleNamespace(params={"db": db})
        self.marks = []

    def add_marker(self, mark):
        self.marks.append(mark)


@pytest.mark.parametrize("is_quick", [True, False])
def test_what_has_passed_is_not_run_once_more_but_a_property_that_tried_few_examples(tmp_path, is_quick):
    file = tmp_path / "passed"

    def once():
        return Once(SimpleNamespace(getoption={"quick": is_quick}.get), file)

    first = once()
    for name, keywords, passed in (("a", {}, True), ("b", {}, False), ("c", {"hypothesis": 1}, True)):
        first.pytest_runtest_logreport(SimpleNamespace(nodeid=name, when="call", passed=passed, keywords=keywords))
    first.pytest_sessionfinish()
    items = [SimpleNamespace(nodeid=name) for name in "abcd"]
    once().pytest_collection_modifyitems(items)
    assert "".join(item.nodeid for item in items) == ("bcd" if is_quick else "bd")


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
