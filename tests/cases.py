"""Cases: inputs with the right values, a file of JSON lines each, under the same name in one folder or in both.

The project's own are in `tests/own_cases` and always there. The shared corpora are an oracle that is read in place and never
copied into this repository: `$TURNWRIGHT_CASES`, else `../shared/cases` beside the repository.

`load_cases("rummy/xml_parser.jsonl")` returns the cases of one file, own ones first; `params` gives them to
`parametrize` with their ids; `expect` compares a verdict with the lists of known exceptions. The own cases alone prove every
row; a test about the shared ones is marked with `NEEDS_SHARED`.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from needs import IS_COMPLETE, left_out, needs

ROOT = Path(__file__).resolve().parents[1]
OWN = ROOT / "tests" / "own_cases"
FOLDER = Path(os.environ.get("TURNWRIGHT_CASES") or ROOT.parent / "shared" / "cases")

Case = dict[str, Any]

SHARED_CASES = ("the cases in ../shared", f"there is no {FOLDER}; TURNWRIGHT_CASES names their folder")
NEEDS_SHARED = needs(*SHARED_CASES, there=FOLDER.exists())


def load_cases(name: str) -> list[Case]:
    """Return the cases of one JSON-lines file, the project's own first."""
    return _read(OWN / name) + load_shared(name)


def load_shared(name: str) -> list[Case]:
    """Return the shared cases of one file; none where the corpora are absent."""
    return _read(shared_file(name)) if IS_COMPLETE or (FOLDER / name).exists() else []


def _read(path: Path) -> list[Case]:
    # Not splitlines: strings in the cases hold U+2028 and its kin.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def shared_file(name: str) -> Path:
    """A file of the shared corpora; leaves out the test, or the module that is being imported, where it is absent."""
    path = FOLDER / name
    if not path.exists():
        left_out(*SHARED_CASES, is_module=True)
    return path


def params(*names: str) -> list[Any]:
    """Return the cases of files as parameters whose ids are the cases' ids."""
    return [pytest.param(case, id=case["id"]) for name in names for case in load_cases(name)]


def expect(case_id: str, *, passed: bool, exceptions: Mapping[str, str]) -> None:
    """Assert that a case passes, or that it still fails when it is listed as an exception."""
    if case_id in exceptions:
        assert not passed, f"{case_id} passes now: take it off the list ({exceptions[case_id]})"
    else:
        assert passed
