"""The release before this one: its code in a checkout of its tag, with an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
INSTALL_S = 600


@dataclass(frozen=True)
class Release:
    """A checkout, and a Python with what it depends on."""

    tag: str
    checkout: Path
    python: Path


def git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(REPO), *words], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


def tag_before() -> str:
    """TURNWRIGHT_UPGRADE_FROM, or the newest tag before this commit; empty: nothing was released yet."""
    if named := os.environ.get("TURNWRIGHT_UPGRADE_FROM"):
        return named
    tags = git("tag", "--list", "v*", "--merged", "HEAD", "--no-contains", "HEAD", "--sort=-version:refname")
    return next(iter(tags.splitlines()), "")


@contextmanager
def installed(folder: Path) -> Iterator[Release]:
    """The release before, for the time of the block. Leaves the test out if there is none."""
    tag = tag_before()
    if not tag:
        pytest.skip("no release before this one has a tag: TURNWRIGHT_UPGRADE_FROM names another commit")
    checkout, environment = folder / "checkout", folder / "environment"
    git("worktree", "add", "--detach", str(checkout), tag)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=INSTALL_S)
        python = environment / "bin" / "python"
        # Of each distribution in it, as a release has them.
        projects = [str(file.parent) for file in sorted(checkout.rglob("pyproject.toml")) if "tests" not in file.parts]
        quiet = ("--quiet", "--disable-pip-version-check")
        subprocess.run([python, "-m", "pip", "install", *quiet, *projects], check=True, timeout=INSTALL_S)
        yield Release(tag, checkout, python)
    finally:
        git("worktree", "remove", "--force", str(checkout))
