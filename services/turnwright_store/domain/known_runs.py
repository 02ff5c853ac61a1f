"""A write-through cache of the rows that each write of a run begins with: the run, its open turn, its latest packet.

Theory of operation. Only the connection of the one writer of a SQLite file has one: whatever changes these rows goes
through it. A statement that writes to one of their tables empties the cache, so that nobody has to think of it; the few
statements of a turn are marked with `KEEPS_KNOWN_RUNS`, and the functions that send them say what they changed. A
transaction or a part of it that is undone empties the cache too. PostgreSQL has more than one writer, and no cache.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.runs import Turn

RUNS_MAX: Final = 1000
"""Runs that are known at most: those that were written last."""

KEEPS_KNOWN_RUNS: Final[dict[str, Any]] = {"keeps_known_runs": True}
"""Execution options of a statement whose sender tells the cache what it has changed, or that changes nothing in it."""


class KnownRun(Struct):
    """What is known of a run."""

    row: Any
    """The row of the run, with the revisions that it reads (sql.runs.RunRow)."""
    open_turn: Turn | None = None


class KnownRuns:
    """The runs that are known, those that were used last at the end."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._runs: OrderedDict[tuple[str, str], KnownRun] = OrderedDict()
        self._by_id: dict[int, tuple[str, str]] = {}
        self._by_scope: dict[int, tuple[str, str]] = {}
        self._shared: dict[int, int] = {}
        """Revisions of the scopes that known runs share with others."""
        self._packets: OrderedDict[int, Any] = OrderedDict()

    def packet(self, run_id: int) -> Any:
        """The row of a run's latest packet (sql.packets.PacketRow); None: not known."""
        return self._packets.get(run_id)

    def put_packet(self, run_id: int, row: Any) -> None:
        """The latest packet of a run; None: anything may have become of it."""
        self._packets.pop(run_id, None)
        if row is not None:
            self._packets[run_id] = row
            if len(self._packets) > RUNS_MAX:
                self._packets.popitem(last=False)

    def find(self, project: str, alias: str) -> KnownRun | None:
        """What is known of a run, by the names of its project and itself."""
        found = self._runs.get((project, alias))
        if found is not None:
            self._runs.move_to_end((project, alias))
            row = found.row
            of_project, of_all = self._shared[row.project_scope], self._shared[row.global_scope]
            if (row.revision_project, row.revision_global) != (of_project, of_all):
                found.row = replace(row, revision_project=of_project, revision_global=of_all)
        return found

    def of_id(self, run_id: int) -> KnownRun | None:
        """What is known of a run."""
        name = self._by_id.get(run_id)
        return self._runs.get(name) if name else None

    def put(self, row: Any, open_turn: Turn | None = None) -> None:
        """A run as it is stored now, and its open turn, if that is at hand."""
        name = (row.project, row.alias)
        self._shared[row.project_scope], self._shared[row.global_scope] = row.revision_project, row.revision_global
        known = self._runs.get(name)
        if known is None:
            self._runs[name] = KnownRun(row, open_turn)
            self._by_id[row.id] = self._by_scope[row.scope] = name
            if len(self._runs) > RUNS_MAX:
                self._forget(next(iter(self._runs)))
        else:
            known.row, known.open_turn = row, open_turn
            self._runs.move_to_end(name)

    def bumped(self, scope: int, revision: int, places: int) -> None:
        """A scope has come to this revision, and its timeline to this place."""
        if scope in self._shared:
            self._shared[scope] = revision
        elif name := self._by_scope.get(scope):
            known = self._runs[name]
            known.row = replace(known.row, revision_run=revision, places=places)

    def drop(self, run_id: int) -> None:
        """A run was written, and its row is not at hand."""
        name = self._by_id.get(run_id)
        if name is not None:
            self._forget(name)

    def clear(self) -> None:
        """Anything may have changed."""
        self._packets.clear()
        self._runs.clear()
        self._by_id.clear()
        self._by_scope.clear()
        self._shared.clear()

    def _forget(self, name: tuple[str, str]) -> None:
        row = self._runs.pop(name).row
        del self._by_id[row.id], self._by_scope[row.scope]
