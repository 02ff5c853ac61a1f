"""tests/rows.toml tells the truth: every conformance row is in it, and what it calls done is proven.

The tables are read where they live: the folder `conformance` in $TURNWRIGHT_SHARED, or in `shared`
beside the repository. Without them the comparison is left out.
"""

import ast
import os
import re
import tomllib
from pathlib import Path

import pytest

from needs import left_out
from parsed import REPO, trees

ROWS_FILE = "tests/rows.toml"
DOCUMENTS = ("rummy", "refact", "opencode", "acp")
STATUSES = ("open", "done")
# Row ids have two letters; C1, C2 ... are decisions, which no test proves by itself.
ROW_LINE = re.compile(r"^\|\s*([A-Z]{2}\d+)\s*\|", re.MULTILINE)
NEVER_RUNS = {"skip", "xfail"}

Row = dict[str, object]


def conformance_folder() -> Path:
    """Where the tables are; leaves out the calling test where they are absent."""
    folder = Path(os.environ.get("TURNWRIGHT_SHARED") or REPO.parent / "shared") / "conformance"
    if not folder.is_dir():
        left_out("the tables in ../shared", f"there is no {folder}; TURNWRIGHT_SHARED names the folder above it")
    return folder


def document_ids(text: str) -> list[str]:
    """The row ids of one conformance document, in its order."""
    return ROW_LINE.findall(text)


def difference(document: str, wanted: list[str], listed: list[str]) -> list[str]:
    """What to change in rows.toml so that it lists `wanted`; empty when it does."""
    problems = [f'[{document}] add {row} = {{ status = "open" }}' for row in wanted if row not in listed]
    problems += [f"[{document}] remove {row}: {document}.md has no such row" for row in listed if row not in wanted]
    if not problems and wanted != listed:
        first = next(w for w, have in zip(wanted, listed, strict=True) if w != have)
        problems = [f"[{document}] put the rows in the order of {document}.md; {first} is the first out of place"]
    return problems


def row_problems(row_id: str, row: Row) -> list[str]:
    """What is wrong with one line of rows.toml, tests that it names included."""
    if row.get("status") not in STATUSES:
        return [f"{row_id}: status must be one of {', '.join(STATUSES)}, not {row.get('status')!r}"]
    problems = [f"{row_id}: unknown key {key!r}" for key in row if key not in {"status", "tests", "note"}]
    tests = row.get("tests", [])
    if row["status"] == "open":
        return problems + ([f"{row_id}: is open but names tests; make it done or drop them"] if tests else [])
    if not tests:
        problems.append(f"{row_id}: is done but names no test; name the test that proves it or make it open")
    return problems + [f"{row_id}: {problem}" for test in tests if (problem := proof_problem(test))]


def proof_problem(node_id: str) -> str | None:
    """Why `tests/x.py::[Class::]function[param]` proves nothing, or None when it stands."""
    path, *names = node_id.partition("[")[0].split("::")
    if not names or not path.startswith("tests/"):
        return f"{node_id!r} is no test id; write tests/<path>.py::[Class::]function"
    if path not in trees("tests"):
        return f"{path} does not exist; name the test's new place or make the row open"
    scope = trees("tests")[path].body
    for name in names:
        found = next((node for node in scope if getattr(node, "name", None) == name), None)
        if found is None:
            return f"{path} has no {name!r}; name the test that took its place or make the row open"
        if marks := NEVER_RUNS & {decorator_name(d) for d in found.decorator_list}:
            return f"{path}::{name} is marked {marks.pop()}, so it proves nothing"
        scope = found.body
    return None


def decorator_name(node: ast.expr) -> str:
    """`skip` for `@pytest.mark.skip(reason=...)`."""
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def rows() -> dict[str, dict[str, Row]]:
    """rows.toml: document -> row id -> row."""
    return tomllib.loads((REPO / ROWS_FILE).read_text(encoding="utf-8"))


def report(problems: list[str]) -> str:
    """The assertion message: one problem per line."""
    return f"{len(problems)} to mend in {ROWS_FILE}:\n  " + "\n  ".join(problems)


def test_rows_are_grouped_by_document() -> None:
    assert tuple(rows()) == DOCUMENTS


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_row_of_the_document_is_listed_and_nothing_else(document: str) -> None:
    wanted = document_ids((conformance_folder() / f"{document}.md").read_text(encoding="utf-8"))
    assert wanted, f"no rows found in {document}.md; has its table changed its form?"
    assert len(wanted) == len(set(wanted)), f"{document}.md uses a row id twice"
    problems = difference(document, wanted, list(rows()[document]))
    assert not problems, report(problems)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_done_rows_name_tests_that_exist_and_open_rows_name_none(document: str) -> None:
    problems = [p for row_id, row in rows()[document].items() for p in row_problems(row_id, row)]
    assert not problems, report(problems)


HERE = "tests/architecture/test_rows.py"


@pytest.mark.parametrize(
    "row",
    [
        {"status": "open"},
        {"status": "open", "note": "waits for a remote model"},
        {"status": "done", "tests": [f"{HERE}::test_rows_are_grouped_by_document"]},
        {"status": "done", "tests": [f"{HERE}::test_a_sound_row_passes[row0]"]},
    ],
)
def test_a_sound_row_passes(row: Row) -> None:
    assert row_problems("RU001", row) == []


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({}, "status must be"),
        ({"status": "maybe"}, "status must be"),
        ({"status": "open", "why": "x"}, "unknown key"),
        ({"status": "open", "tests": [f"{HERE}::test_x"]}, "is open but names tests"),
        ({"status": "done"}, "names no test"),
        ({"status": "done", "tests": []}, "names no test"),
        ({"status": "done", "tests": ["test_x"]}, "is no test id"),
        ({"status": "done", "tests": ["tests/gone.py::test_x"]}, "does not exist"),
        ({"status": "done", "tests": [f"{HERE}::test_gone"]}, "has no 'test_gone'"),
        ({"status": "done", "tests": [f"{HERE}::TestGone::test_x[a::b]"]}, "has no 'TestGone'"),
    ],
)
def test_an_unsound_row_is_reported(row: Row, says: str) -> None:
    [problem] = row_problems("RU001", row)
    assert says in problem


def test_decisions_are_no_rows() -> None:
    assert document_ids("| C1 | a decision |\n| RU001 | a row | |\n|AP02|another|") == ["RU001", "AP02"]


def test_missing_foreign_and_misplaced_rows_are_distinguished() -> None:
    assert difference("acp", ["AP01", "AP02"], ["AP01", "AP02"]) == []
    assert difference("acp", ["AP01", "AP02"], ["AP01"]) == ['[acp] add AP02 = { status = "open" }']
    assert difference("acp", ["AP01"], ["AP01", "AP09"]) == ["[acp] remove AP09: acp.md has no such row"]
    assert "order" in difference("acp", ["AP01", "AP02"], ["AP02", "AP01"])[0]
