"""Breaks one behaviour of a row at a time and runs the tests that tests/rows.toml names for it: `make mutants`.

A mutant is a line of tests/mutants.toml: a row, a file, a text that stands there once, and what to put in its place. The
product is copied to a folder of its own, so the working tree stays as it is. Of each mutant this prints which named tests turned red
and which stayed green; a mutant that none of them notices means that the row is not proven, and the exit code is 1.

    python tests/mutants.py [ROW ...]      all rows of the file, or these
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
COPIED = ("services", "gen/python", "gen/go", "protos", "tests", "docs", "deploy", "third_party")
TIMEOUT_S = 600
"""How long the tests of one mutant may take, in seconds: longer than that is as good as red."""


@dataclass(frozen=True)
class Mutant:
    """A behaviour of a row, broken."""

    row: str
    file: str
    old: str
    new: str

    def problem(self) -> str:
        """Why it cannot be made; empty where it can."""
        count = (REPO / self.file).read_text(encoding="utf-8").count(self.old) if (REPO / self.file).is_file() else -1
        if count < 0:
            return f"{self.row}: there is no {self.file}"
        return (
            "" if count == 1 else f"{self.row}: {self.old!r} stands {count} times in {self.file}, and must stand once"
        )


def read_mutants() -> list[Mutant]:
    table = tomllib.loads((REPO / "tests/mutants.toml").read_text(encoding="utf-8"))
    return [Mutant(row, **one) for row, mutants in table.items() for one in mutants]


def read_tests() -> dict[str, list[str]]:
    """The tests that are named for each row."""
    documents = tomllib.loads((REPO / "tests/rows.toml").read_text(encoding="utf-8"))
    return {row: told.get("tests", []) for rows in documents.values() for row, told in rows.items()}


def outcomes(folder: Path, mutant: Mutant, tests: list[str]) -> dict[str, bool]:
    """Run these tests against a copy in `folder` that has the mutant: whether each of them is still green."""
    place = folder / mutant.file
    whole = place.read_text(encoding="utf-8")
    place.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
    paths = os.pathsep.join(str(folder / name) for name in ("services", "gen/python"))
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "-p", "no:cacheprovider", *tests]
    try:
        told = subprocess.run(
            command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        ).stdout  # fmt: skip
    except subprocess.TimeoutExpired:
        return dict.fromkeys(tests, False)
    finally:
        place.write_text(whole, encoding="utf-8")
    lines = [line.split(" ", 1) for line in told.splitlines() if re.match(r"(PASSED|FAILED|ERROR) ", line)]
    return {test: is_green(test, lines) for test in tests}


def is_green(test: str, lines: list[list[str]]) -> bool:
    """Whether a test, with whatever parameters, passed and never failed; one that cannot even be loaded is red."""
    of_it = [word for word, name in lines if re.fullmatch(re.escape(test) + r"(\[.*)?( - .*)?", name)]
    return bool(of_it) and set(of_it) == {"PASSED"}


def main(rows: list[str]) -> int:
    """Try the mutants of these rows, or of all; 1 where one of them is noticed by no named test."""
    tests, survivors = read_tests(), 0
    with tempfile.TemporaryDirectory(prefix="turnwright-mutants-") as made:
        folder = Path(made)
        for name in COPIED:
            shutil.copytree(REPO / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for each in REPO.iterdir():
            if each.is_file():
                shutil.copy(each, folder)
        for mutant in read_mutants():
            if rows and mutant.row not in rows:
                continue
            found = outcomes(folder, mutant, tests[mutant.row])
            green = [test for test, passed in found.items() if passed]
            survivors += len(green) == len(found)
            print(
                f"{mutant.row} {'SURVIVED' if len(green) == len(found) else 'noticed'}: {mutant.file}: {mutant.new!r}"
            )
            for test in green:
                print(f"    stays green: {test}")
    print(f"{survivors} survived" if survivors else "every mutant was noticed")
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
