"""How runs are named, and generated names for callers that give none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from msgspec import Struct

from turnwright_core.limits import NAME_CHARS_MAX

_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_IN_ALIAS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_SUFFIX_CHARS: Final = 24
"""Room for the time and a counter at the end of a name."""


class RunRef(Struct, frozen=True):
    """Which run."""

    project: str
    run: str


def project_names(root: str) -> Iterator[str]:
    """Candidates for the name of a project, best first: the last part of its directory, then with a number."""
    base = _NOT_IN_NAME.sub("-", PurePath(root).name).strip("-.")[: NAME_CHARS_MAX - _SUFFIX_CHARS] or "project"
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1


def run_aliases(model: str, now_ms: int) -> Iterator[str]:
    """Candidates for the alias of a run, best first: `{model}_{unix_ms}`, then with a number."""
    base = f"{_NOT_IN_ALIAS.sub('_', model)[: NAME_CHARS_MAX - _SUFFIX_CHARS]}_{now_ms}"
    yield base
    number = 2
    while True:
        yield f"{base}_{number}"
        number += 1
