"""What this project depends on is bounded above, so that an installation of today works tomorrow as well."""

import re
import tomllib
from pathlib import Path

import pytest

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
NAMED = [
    *PYPROJECT["build-system"]["requires"],
    *PYPROJECT["project"]["dependencies"],
    *(each for extra in PYPROJECT["project"]["optional-dependencies"].values() for each in extra),
    *(each for group in PYPROJECT["dependency-groups"].values() for each in group),
]


@pytest.mark.parametrize("named", [each for each in NAMED if not each.startswith("turnwright[")])
def test_a_dependency_has_an_upper_bound(named):
    assert re.search(r"<|==|~=", named), f"{named}: bound it by the next version that may break"
