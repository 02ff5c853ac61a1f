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

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from turnwright_core.runs import RUNNING, Run, SessionState
from turnwright_store.app.changes import Watches
from turnwright_store.app.registry import with_origin
from turnwright_store.ports import ANY_SCOPE, Connection, Database
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


class Overview(Struct, frozen=True):
    """A run in a list, with the number of its waiting proposals."""

    run: Run
    proposals: int


class RunsChange(Struct, frozen=True):
    """One message of a watch; an empty one is a heartbeat."""

    runs: list[Overview] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    snapshot: bool = False
    snapshot_last: bool = False


class _Known(Struct):
    """What the watcher was sent, by the scope of each run."""

    runs: dict[int, tuple[RunMark, str]] = field(default_factory=dict)
    running: dict[int, tuple[bool, SessionState]] = field(default_factory=dict)
    """For running runs: whether they are held, and what they are doing; both change without a commit."""
    strangers: set[int] = field(default_factory=set)
    """Scopes that belong to no run of the project and need not be asked for again."""


async def follow_runs(
    database: Database, watches: Watches, project: str, heartbeat_s: float
) -> AsyncGenerator[RunsChange, None]:
    """Watch the runs of a project; the caller ends it. Raises PROJECT_NOT_FOUND, DRAINING, DATABASE_UNAVAILABLE."""
    owner = await database.read(partial(get_project, name=project))
    subscription = database.subscribe((ANY_SCOPE,))
    try:
        known = _Known()
        async for part in _snapshot(database, owner.id, known):
            yield part
        clock_s = asyncio.get_running_loop().time
        due_s = look_s = clock_s() + heartbeat_s
        while True:
            await watches.wait(subscription.woken, max(0.0, min(due_s, look_s) - clock_s()))
            subscription.woken.clear()
            woken_by = subscription.take()
            running: frozenset[int] = frozenset()
            if clock_s() >= look_s:
                running = frozenset(known.running)
                look_s = clock_s() + heartbeat_s
            changes = await _changes(database, owner.id, known, woken_by, running)
            if not changes and clock_s() >= due_s:
                changes = [RunsChange()]
            for change in changes:
                yield change
                due_s = clock_s() + heartbeat_s
            await asyncio.sleep(PAUSE_S)
    finally:
        subscription.close()


async def _snapshot(database: Database, project_id: int, known: _Known) -> AsyncGenerator[RunsChange, None]:
    before = _LAST_ID
    while True:
        found = await database.read(partial(_page, project_id=project_id, before=before))
        _mark_sent(known, found)
        is_last = len(found) < RUNS_PER_PAGE
        yield RunsChange([overview for _, overview in found], snapshot=True, snapshot_last=is_last)
        if is_last:
            return
        before = found[-1][0].id


def _page(connection: Connection, project_id: int, before: int) -> list[tuple[RunRow, Overview]]:
    found = rows.runs_before(connection, project_id, before, RUNS_PER_PAGE)
    return _with_proposals(connection, found)


def _with_proposals(connection: Connection, found: Sequence[RunRow]) -> list[tuple[RunRow, Overview]]:
    waiting = rows.count_proposals(connection, [row.id for row in found])
    return [(row, Overview(_cut(with_origin(connection, row)), waiting.get(row.id, 0))) for row in found]


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


async def _changes(
    database: Database, project_id: int, known: _Known, woken_by: frozenset[int] | None, running: frozenset[int]
) -> list[RunsChange]:
    """The differences to what was sent, in the scopes of `woken_by` (None: all runs) and in `running`."""
    is_anew = woken_by is None or ANY_SCOPE in woken_by
    if woken_by is None:
        marks = await database.read(partial(rows.run_marks, project_id=project_id))
        sent = {scope: mark for scope, (mark, _) in known.runs.items()}
        asked = {scope for scope in marks.keys() | sent.keys() if marks.get(scope) != sent.get(scope)}
    else:
        asked = set(woken_by if is_anew else woken_by - known.strangers)
    changes = []
    for scopes in batched(sorted(asked | running), RUNS_PER_PAGE):
        found = await database.read(partial(_changed, project_id=project_id, scopes=scopes))
        change = _difference(known, scopes, found)
        if change.runs or change.removed:
            changes.append(change)
    if is_anew:
        known.strangers.clear()
    return changes


def _changed(connection: Connection, project_id: int, scopes: Sequence[int]) -> list[tuple[RunRow, Overview]]:
    return _with_proposals(connection, rows.runs_of_scopes(connection, project_id, scopes))


def _difference(known: _Known, asked: Sequence[int], found: Sequence[tuple[RunRow, Overview]]) -> RunsChange:
    """The difference between the runs that were read and what was sent."""
    news = [(row, overview) for row, overview in found if _is_changed(known, row, overview)]
    present = {row.scope for row, _ in found}
    gone = [scope for scope in asked if scope not in present and scope in known.runs]
    removed = [known.runs.pop(scope)[1] for scope in gone]
    for scope in gone:
        known.running.pop(scope, None)
    if len(known.strangers) > STRANGERS_MAX:
        known.strangers.clear()
    known.strangers.update(scope for scope in asked if scope not in present)
    removed += [known.runs[row.scope][1] for row, _ in news if _is_renamed(known, row)]
    _mark_sent(known, news)
    # An alias that another run has by now was sent as that one's, in this message or an earlier one.
    used = {alias for _, alias in known.runs.values()} if removed else set()
    return RunsChange([overview for _, overview in news], [alias for alias in removed if alias not in used])


def _is_changed(known: _Known, row: RunRow, overview: Overview) -> bool:
    now = _running(overview)
    return known.runs.get(row.scope) != _mark(row, overview) or known.running.get(row.scope, now) != now


def _running(overview: Overview) -> tuple[bool, SessionState]:
    return overview.run.held, overview.run.state


def _is_renamed(known: _Known, row: RunRow) -> bool:
    return row.scope in known.runs and known.runs[row.scope][1] != row.run.run


def _mark_sent(known: _Known, found: Sequence[tuple[RunRow, Overview]]) -> None:
    for row, overview in found:
        known.runs[row.scope] = _mark(row, overview)
        known.running.pop(row.scope, None)
        if row.run.status == RUNNING:
            known.running[row.scope] = _running(overview)


def _mark(row: RunRow, overview: Overview) -> tuple[RunMark, str]:
    return RunMark(row.run.revision, overview.proposals), row.run.run
