"""The corpora of cases: read in place, never copied into this repository.

`load_cases("rummy/xml_parser.jsonl")` returns the cases of one file; `params` gives them to
`parametrize` with their ids; `expect` compares a verdict with the lists of known exceptions.

The folder is `$TURNWRIGHT_CASES`, else `../shared/cases` beside the repository. Where it is absent a
module of cases skips and says so; under `CI` it fails.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("TURNWRIGHT_CASES") or ROOT.parent / "shared" / "cases")

Case = dict[str, Any]


def load_cases(name: str) -> list[Case]:
    """Return the cases of one JSON-lines file; skip the module (fail under CI) when it is absent."""
    path = FOLDER / name
    if not path.exists():
        reason = f"the cases are not there: {path}; set TURNWRIGHT_CASES to their folder"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason, allow_module_level=True)
    # Not splitlines: strings in the cases hold U+2028 and its kin.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def params(*names: str) -> list[Any]:
    """Return the cases of files as parameters whose ids are the cases' ids."""
    return [pytest.param(case, id=case["id"]) for name in names for case in load_cases(name)]


def expect(case_id: str, *, passed: bool, exceptions: Mapping[str, str]) -> None:
    """Assert that a case passes, or that it still fails when it is listed as an exception."""
    if case_id in exceptions:
        assert not passed, f"{case_id} passes now: take it off the list ({exceptions[case_id]})"
    else:
        assert passed
