"""How runs and the records of their turns are named, and generated names for callers that give none."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from itertools import count
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from turnwright_core.limits import NAME_CHARS_MAX

_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_IN_ALIAS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_SUFFIX_CHARS: Final = 24
"""Room for letters and a counter at the end of a name."""
_LETTERS: Final = "23456789bcdfghjkmnpqrstvwxz"
_SCATTER: Final = 200_003


class RunRef(Struct, frozen=True):
    """Which run."""

    project: str
    run: str


def place_name(alias: str) -> str:
    """A name for the directory of a run, which no other run has had: aliases are used again, and change.

    Its branch has it too, so a private run gives no alias.
    """
    return f"{alias or 'private'}-{secrets.token_hex(4)}"


def project_names(root: str) -> Iterator[str]:
    """Candidates for the name of a project, best first: the last part of its directory, then with a number."""
    base = _NOT_IN_NAME.sub("-", PurePath(root).name).strip("-.")[: NAME_CHARS_MAX - _SUFFIX_CHARS] or "project"
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1


def run_aliases(model: str, now_ms: int) -> Iterator[str]:
    """Candidates for the alias of a run: the model with four letters and digits that are easy to type, then a number.

    The letters are the time, scattered: runs made one after the other look unlike each other.
    """
    number = now_ms * _SCATTER
    letters = "".join(_LETTERS[number // len(_LETTERS) ** place % len(_LETTERS)] for place in range(4))
    base = f"{_NOT_IN_ALIAS.sub('_', model)[: NAME_CHARS_MAX - _SUFFIX_CHARS]}-{letters}"
    yield base
    for again in count(2):
        yield f"{base}-{again}"


def records_prefix(turn: int) -> str:
    """The path prefix of a turn's records (RU075)."""
    return f"log://turn_{turn}/"
