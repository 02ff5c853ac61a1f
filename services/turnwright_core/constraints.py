"""What a project says of some of its files.

`add`: taken in whatever else says no, and in view from the first. `readonly`: taken in, never changed. `ignore`: not
taken in. Of several constraints on one file the one that names its path wins, else the strictest: `ignore`, `readonly`,
`add`; a file that any of them calls readonly is never changed. Source: rows RU112-RU114, RU168; decision C7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from turnwright_core.patterns import PatternError, Shape, match, shape_of
from turnwright_core.values import frozen

ADD: Final = "add"
READONLY: Final = "readonly"
IGNORE: Final = "ignore"

_UPWARDS: Final = re.compile(r"(?:^|[/{,(|])\.\.(?:$|[/},)|])")


@frozen
class FileConstraint:
    """What holds for the files that a pattern fits: a glob, a `/regex/` or an exact path below the project's root."""

    pattern: str
    kind: str
    create_ms: int = 0


class Constraints:
    """The constraints of a project, asked for one path after the other; what was found out is kept."""

    def __init__(self, constraints: Iterable[FileConstraint] = ()) -> None:
        """Go by these."""
        self._rules = frozenset((one.pattern, one.kind) for one in constraints)
        self._exact = dict(self._rules)
        self._adding = self._patterns(ADD)
        self._ignoring = self._patterns(IGNORE)
        self._fixing = self._patterns(READONLY)
        self._ignored: dict[str, bool] = {}

    def _patterns(self, kind: str) -> list[str]:
        return sorted(pattern for pattern, said in self._rules if said == kind)

    def __eq__(self, other: object) -> bool:
        """Whether the same is said of every file."""
        return isinstance(other, Constraints) and self._rules == other._rules

    def __hash__(self) -> int:
        """Equal constraints have equal hashes."""
        return hash(self._rules)

    @property
    def taken_in(self) -> list[str]:
        """Patterns of the files that are taken in whatever else says no."""
        return sorted([*self._adding, *self._fixing])

    def is_ignored(self, path: str) -> bool:
        """Whether a file is not taken in."""
        said = self._exact.get(path)
        if said is not None:
            return said == IGNORE
        if path not in self._ignored:
            self._ignored[path] = any(fits(pattern, path) for pattern in self._ignoring)
        return self._ignored[path]

    def is_added(self, path: str) -> bool:
        """Whether the project asks for a file by `add`: a run has it in view from the first (RU168, C7)."""
        said = self._exact.get(path)
        if said is not None:
            return said == ADD
        return any(fits(pattern, path) for pattern in self._adding) and not (
            self.is_ignored(path) or self.is_readonly(path)
        )

    def is_readonly(self, path: str) -> bool:
        """Whether a file is never changed."""
        return any(fits(pattern, path, undecided=True) for pattern in self._fixing)


def fits(pattern: str, path: str, *, undecided: bool = False) -> bool:
    """Whether a pattern fits a path; `undecided` where it takes too long to find out."""
    try:
        return match(pattern, path)
    except PatternError:
        return undecided


def leaves_the_project(pattern: str) -> bool:
    """Whether an exact path or a glob names something that is not below the project's root, as `../x` and `/x` do."""
    if shape_of(pattern) is Shape.REGEX:
        # It is held against the paths of files that are in the project.
        return False
    return pattern.startswith("/") or bool(_UPWARDS.search(pattern))


def fixed_folder(pattern: str) -> str:
    """The folder that everything lies in that a pattern fits; empty for the root."""
    if shape_of(pattern) is not Shape.GLOB:
        return ""
    fixed = pattern[: next(place for place, character in enumerate(pattern + "*") if character in "*?[]{}!@+()\\")]
    return fixed.rpartition("/")[0]
