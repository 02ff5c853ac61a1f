"""What this project depends on is bounded above, so that an installation of today works tomorrow as well."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
CLIENT = tomllib.loads(
    (Path(__file__).parents[2] / "services/clients/python/pyproject.toml").read_text(encoding="utf-8")
)
MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
WANTED = PYPROJECT["project"]["requires-python"]
NAMED = [
    *CLIENT["build-system"]["requires"],
    *CLIENT["project"]["dependencies"],
    *PYPROJECT["build-system"]["requires"],
    *PYPROJECT["project"]["dependencies"],
    *(each for extra in PYPROJECT["project"]["optional-dependencies"].values() for each in extra),
    *(each for group in PYPROJECT["dependency-groups"].values() for each in group),
]


@pytest.mark.parametrize("named", [each for each in NAMED if not each.startswith("turnwright[")])
def test_a_dependency_has_an_upper_bound(named):
    assert re.search(r"<|==|~=", named), f"{named}: bound it by the next version that may break"


EXTRAS = PYPROJECT["project"]["optional-dependencies"]


@pytest.mark.parametrize(
    "named",
    [
        *CLIENT["project"]["dependencies"],
        *PYPROJECT["project"]["dependencies"],
        *EXTRAS["prices"],
        *EXTRAS["tokenizer"],
        *EXTRAS["telemetry"],
    ],
)
def test_pip_says_that_a_python_is_too_old_before_it_misses_a_dependency(named):
    assert named.endswith(f"; python_version >= '{WANTED.removeprefix('>=')}'")


@pytest.mark.parametrize(
    ("version", "is_told"), [((2, 7), True), ((3, 9), True), ((3, 10), True), ((3, 11), False), ((4, 0), False)]
)
def test_make_says_in_a_sentence_that_a_python_is_too_old(version, is_told):
    check = re.search(r"^RECENT := (.*?[^\\])$", MAKEFILE, re.MULTILINE | re.DOTALL)
    told = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.version_info = {version}; {check[1].replace(chr(92) + chr(10), '')}"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (told.returncode, told.stdout) == (int(is_told), "")
    sentence = f"Turnwright needs Python {WANTED.removeprefix('>=')} or later, and {sys.executable} is {version[0]}.{version[1]}. "
    assert told.stderr.startswith(sentence) == is_told
    assert told.stderr.count("\n") == int(is_told)
    # Before an environment is made, and before anything is installed into one that is there.
    assert MAKEFILE.count("-c '$(RECENT)'") == 3


def test_the_client_and_the_rest_agree_on_what_both_need():
    """Otherwise no environment could have both."""
    ours = {re.match(r"[\w-]+", one)[0]: one for one in PYPROJECT["project"]["dependencies"]}
    assert {one: ours.get(re.match(r"[\w-]+", one)[0]) for one in CLIENT["project"]["dependencies"]} == {
        one: one for one in CLIENT["project"]["dependencies"]
    }
