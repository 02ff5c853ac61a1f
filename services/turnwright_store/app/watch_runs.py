"""The watch over the runs of a project: a snapshot of all, then those that change.

Theory of operation. A watcher is notified of the scopes that each commit has raised, and reads the runs of its project
that own one of them: one query for all changes since the last one, whatever the number of runs. A lease expires without
a commit, so running runs are read at each heartbeat too. Notifications come after the commit is visible, on every
replica, so a read never comes too early. If one may be missing (after a reconnection, and every few seconds), the
watcher compares the revisions of all runs with those that it has sent. When a scope is deleted, it forgets the scopes
of other projects, because SQLite reuses their ids. Source: architecture 3 (revisions and the change feed), 7; rows
RU242, RU246.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import count
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Run, RunOverview, SessionState

from turnwright_core.runs import RUNNING
from turnwright_store.app.registry import with_origins
from turnwright_store.ports import ANY_SCOPE, Database, Subscription
from turnwright_store.sql import control as rows
from turnwright_store.sql.control import RunMark
from turnwright_store.sql.entries import batched
from turnwright_store.sql.registry import get_project
from turnwright_store.sql.runs import RunRow

RUNS_PER_PAGE: Final = 100
"""Runs to read at a time; each has a prompt of at most 1 MiB."""

PAUSE_S: Final = 0.05
"""Minimum seconds between two reads: what happens in between is combined."""

TEXT_BYTES_MAX: Final = 2048
"""Bytes of a prompt, a summary or a reason in an overview."""

STRANGERS_MAX: Final = 100_000
"""Scopes of other projects that a watcher remembers."""

_LAST_ID: Final = 2**62


class RunsChange(Struct, frozen=True):
    """One message of a watch; an empty one is a heartbeat."""

    runs: list[RunOverview] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    part: int | None = None
    """Number of a part of the snapshot."""
    is_last: bool = False


class RunsWatch(Struct):
    """What a watcher of a project was sent, by the scope of each run."""

    database: Database
    subscription: Subscription
    project_id: int
    is_begun: bool = False
    runs: dict[int, tuple[RunMark, str]] = field(default_factory=dict)
    running: dict[int, tuple[bool, SessionState]] = field(default_factory=dict)
    """For running runs: whether they are held, and what they are doing; both change without a commit."""
    strangers: set[int] = field(default_factory=set)
    """Scopes that belong to no run of the project and need not be asked for again."""
    pause_s: float = PAUSE_S

    def heartbeat(self) -> RunsChange:
        return RunsChange()

    async def read(self, *, is_woken: bool, is_due: bool) -> AsyncIterator[RunsChange]:  # noqa: ARG002 - as others
        """The snapshot at first, then differences to what was sent."""
        if not self.is_begun:
            self.is_begun = True
            async for part in self._snapshot():
                yield part
            return
        woken_by = self.subscription.take()
        running = self.running.keys() if is_due else ()
        is_anew = woken_by is None or ANY_SCOPE in woken_by
        if woken_by is None:
            marks = await self.database.read(partial(rows.run_marks, project_id=self.project_id))
            sent = {scope: mark for scope, (mark, _) in self.runs.items()}
            asked = {scope for scope in marks.keys() | sent.keys() if marks.get(scope) != sent.get(scope)}
        else:
            asked = set(woken_by if is_anew else woken_by - self.strangers)
        for scopes in batched(sorted(asked.union(running)), RUNS_PER_PAGE):
            found = await self.database.read(partial(_changed, project_id=self.project_id, scopes=scopes))
            change = self._difference(scopes, found)
            if change.runs or change.removed:
                yield change
        if is_anew:
            self.strangers.clear()

    async def _snapshot(self) -> AsyncIterator[RunsChange]:
        before = _LAST_ID
        for part in count():
            found = await self.database.read(partial(_page, project_id=self.project_id, before=before))
            self._mark_sent(found)
            is_last = len(found) < RUNS_PER_PAGE
            yield RunsChange([overview for _, overview in found], part=part, is_last=is_last)
            if is_last:
                return
            before = found[-1][0].id

    def _difference(self, asked: Sequence[int], found: Sequence[tuple[RunRow, RunOverview]]) -> RunsChange:
        """The difference between the runs that were read and what was sent."""
        news = [(row, overview) for row, overview in found if self._is_changed(row, overview)]
        present = {row.scope for row, _ in found}
        gone = [scope for scope in asked if scope not in present and scope in self.runs]
        removed = [self.runs.pop(scope)[1] for scope in gone]
        for scope in gone:
            self.running.pop(scope, None)
        if len(self.strangers) > STRANGERS_MAX:
            self.strangers.clear()
        self.strangers.update(scope for scope in asked if scope not in present)
        removed += [self.runs[row.scope][1] for row, _ in news if self._is_renamed(row)]
        self._mark_sent(news)
        # An alias that another run has by now was sent as that one's, in this message or an earlier one.
        used = {alias for _, alias in self.runs.values()} if removed else set()
        return RunsChange([overview for _, overview in news], [alias for alias in removed if alias not in used])

    def _is_changed(self, row: RunRow, overview: RunOverview) -> bool:
        now = _running(overview)
        return self.runs.get(row.scope) != _mark(row, overview) or self.running.get(row.scope, now) != now

    def _is_renamed(self, row: RunRow) -> bool:
        return row.scope in self.runs and self.runs[row.scope][1] != row.run.run

    def _mark_sent(self, found: Sequence[tuple[RunRow, RunOverview]]) -> None:
        for row, overview in found:
            self.runs[row.scope] = _mark(row, overview)
            self.running.pop(row.scope, None)
            if row.run.status == RUNNING:
                self.running[row.scope] = _running(overview)


async def watch_runs(database: Database, project: str) -> RunsWatch:
    """Begin a watch of the runs of a project. Raises PROJECT_NOT_FOUND."""
    owner = await database.read(partial(get_project, name=project))
    return RunsWatch(database, database.subscribe((ANY_SCOPE,)), owner.id)


def _page(connection: Connection, project_id: int, before: int) -> list[tuple[RunRow, RunOverview]]:
    found = rows.runs_before(connection, project_id, before, RUNS_PER_PAGE)
    return _with_proposals(connection, found)


def _with_proposals(connection: Connection, found: Sequence[RunRow]) -> list[tuple[RunRow, RunOverview]]:
    waiting = rows.count_proposals(connection, [row.id for row in found])
    runs = with_origins(connection, found)
    return [(row, RunOverview(_cut(run), waiting.get(row.id, 0))) for row, run in zip(found, runs, strict=True)]


def _cut(run: Run) -> Run:
    loop = run.loop
    if loop:
        loop = replace(
            loop, prompt=_shortened(loop.prompt), summary=_shortened(loop.summary), reason=_shortened(loop.reason)
        )
    return replace(run, loop=loop, summary=_shortened(run.summary))


def _shortened(text: str) -> str:
    if len(text) <= TEXT_BYTES_MAX // 4:
        return text
    return text.encode(errors="surrogatepass")[:TEXT_BYTES_MAX].decode(errors="ignore")


def _changed(connection: Connection, project_id: int, scopes: Sequence[int]) -> list[tuple[RunRow, RunOverview]]:
    return _with_proposals(connection, rows.runs_of_scopes(connection, project_id, scopes))


def _running(overview: RunOverview) -> tuple[bool, SessionState]:
    return overview.run.held, overview.run.state


def _mark(row: RunRow, overview: RunOverview) -> tuple[RunMark, str]:
    return RunMark(row.run.revision, overview.proposals), row.run.run
