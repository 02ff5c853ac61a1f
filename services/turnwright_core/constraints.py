"""File constraints: which files of a project are included, and which may be changed.

`add`: included even if another rule excludes it, and visible from the start. `readonly`: included, never changed.
`ignore`: excluded. If several constraints match a file, the one with its exact path wins, else the strictest: `ignore`,
`readonly`, `add`; a file that any of them makes readonly is never changed. Patterns and paths are compared with their
letters composed: macOS decomposes in names what everybody else composes. Source: rows RU112-RU114, RU168; decision C7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from errno import EDOM
from functools import cached_property
from time import thread_time
from typing import Final

from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_core.limits import FILE_PATTERNS_MAX
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.matching import matcher
from turnwright_core.patterns.shapes import Shape, shape_of
from turnwright_core.patterns.typography import composed

_UPWARDS: Final = re.compile(r"(?:^|[/{,(|])\.\.(?:$|[/},)|])")


TRYING_S: Final = 10.0
"""CPU seconds that matching may take in any case, for all paths together."""

TRYING_S_A_PATH: Final = 0.005
"""Additional CPU seconds for each path: ten times what a hundred globs take."""


class UndecidedError(OSError):
    """Matching a constraint takes too long. `strerror` says which one, and what to do."""


class Constraints:
    """The constraints of a project, with a cache of the result for each path.

    The first look-up of a path may take half a second of CPU, so do not call this in an event loop.
    """

    def __init__(self, constraints: Iterable[FileConstraint] = ()) -> None:
        self._rules = frozenset((one.pattern, one.kind) for one in constraints)
        # Of two that name one path, with letters composed and decomposed, the strictest counts.
        # The numbers of kinds rise with it.
        by_strictness = sorted(self._rules, key=lambda rule: rule[1])
        self._exact = {composed(pattern): kind for pattern, kind in by_strictness}
        self._adding = self._patterns(FileConstraintKind.ADD)
        self._ignoring = self._patterns(FileConstraintKind.IGNORE)
        self._fixing = self._patterns(FileConstraintKind.READONLY)

    def _patterns(self, kind: FileConstraintKind) -> Patterns:
        return Patterns(pattern for pattern, action in self._rules if action == kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraints) and self._rules == other._rules

    def __hash__(self) -> int:
        return hash(self._rules)

    @property
    def rules(self) -> tuple[tuple[str, int], ...]:
        """Pattern and kind of each."""
        return tuple(sorted((pattern, int(kind)) for pattern, kind in self._rules))

    @property
    def paths_taken_in(self) -> list[str]:
        """Exact paths of files that are always included."""
        return sorted(
            path for path, kind in self._rules if kind != FileConstraintKind.IGNORE and shape_of(path) is Shape.LITERAL
        )

    @property
    def patterns_taken_in(self) -> dict[str, Patterns]:
        """Patterns of files that are always included, by the folder below which they can match."""
        folders: dict[str, list[str]] = {}
        for pattern in (*self._adding.patterns, *self._fixing.patterns):
            folders.setdefault(fixed_folder(pattern), []).append(pattern)
        return {folder: Patterns(patterns) for folder, patterns in sorted(folders.items())}

    def is_ignored(self, path: str) -> bool:
        """Whether a file is excluded. Raises UndecidedError."""
        action = self._exact.get(composed(path))
        return self._ignoring.fit(path) if action is None else action == FileConstraintKind.IGNORE

    def is_added(self, path: str) -> bool:
        """Whether the project includes a file with `add`: a run sees it from the start (RU168, C7).

        Raises UndecidedError.
        """
        action = self._exact.get(composed(path))
        if action is not None:
            return action == FileConstraintKind.ADD
        return self._adding.fit(path) and not (self.is_ignored(path) or self.is_readonly(path))

    def is_readonly(self, path: str) -> bool:
        """Whether a file must never be changed. Raises UndecidedError."""
        return self._exact.get(composed(path)) == FileConstraintKind.READONLY or self._fixing.fit(path)


class Patterns:
    """A set of patterns to match a path against; exact paths among them are left out."""

    def __init__(
        self, patterns: Iterable[str], trying_s: float = TRYING_S, trying_s_a_path: float = TRYING_S_A_PATH
    ) -> None:
        """Patterns are compiled at the first match."""
        self.patterns = sorted(pattern for pattern in patterns if shape_of(pattern) is not Shape.LITERAL)
        self._known: dict[str, bool] = {}
        self._trying_s, self._trying_s_a_path = trying_s, trying_s_a_path
        self._spent_s = 0.0

    @cached_property
    def _matchers(self) -> list[Callable[[str], bool]]:
        return [matcher(composed(pattern)) for pattern in self.patterns]

    def fit(self, path: str) -> bool:
        """Whether any pattern matches. Raises UndecidedError."""
        if not self.patterns:
            return False
        path = composed(path)
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._tried(path)
        return known

    def _tried(self, path: str) -> bool:
        if len(self.patterns) > FILE_PATTERNS_MAX:
            problem = f"its files have {len(self.patterns)} globs and regexes of one kind as constraints"
            raise UndecidedError(EDOM, f"{problem}, and at most {FILE_PATTERNS_MAX} are allowed: remove some")
        if self._spent_s > self._trying_s + self._trying_s_a_path * len(self._known):
            raise UndecidedError(EDOM, "the constraints on its files take too long: use simpler globs and regexes")
        began_s = thread_time()
        try:
            return any(matches(path) for matches in self._matchers)
        except PatternError as error:
            problem = f"a constraint on its files cannot be decided for {path}: {error}"
            raise UndecidedError(EDOM, problem) from None
        finally:
            self._spent_s += thread_time() - began_s


def leaves_the_project(pattern: str) -> bool:
    """Whether an exact path or a glob points outside the project, like `../x` and `/x`."""
    if shape_of(pattern) is Shape.REGEX:
        # It is compared with the paths of files in the project.
        return False
    return pattern.startswith("/") or bool(_UPWARDS.search(pattern))


def fixed_folder(pattern: str) -> str:
    """The folder that contains everything a pattern can match; empty for the root.

    A folder whose letters can be composed or not has several names, so it is one above.
    """
    if shape_of(pattern) is not Shape.GLOB:
        return ""
    ends = (index for index, char in enumerate(pattern + "*") if char in "*?[]{}!@+()\\" or not char.isascii())
    fixed = pattern[: next(ends)]
    return fixed.rpartition("/")[0]
