"""The watch over the runs of a project: a snapshot of all, then those that change.

Theory of operation. A watcher is notified of the scopes that each commit has raised, and reads the runs of its project
that own one of them: one query for all changes since the last one, whatever the number of runs. A lease expires without
a commit, so running runs are read at each heartbeat too. Notifications come after the commit is visible, on every
replica, so a read never comes too early. If one may be missing (after a reconnection, and every few seconds), the
watcher compares the revisions of all runs with those that it has sent. When a scope is deleted, it forgets the scopes
of other projects, because SQLite reuses their ids.

A watch that goes on from a cursor first compares all runs with what its caller must know, from when they were written
and from what the cursor says (`domain.runs_cursor`); running ones are told in any case. Source: architecture 3
(revisions and the change feed), 7; rows RU242, RU246, RT02.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from itertools import count
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Run, RunOverview, SessionState

from turnwright_core.runs import RUNNING
from turnwright_store.app.registry import RunPage, with_origins
from turnwright_store.domain.runs_cursor import (
    CURSOR_KEPT_MS,
    RunMark,
    RunsCursor,
    alias_digest,
    decode_runs_cursor,
    encode_runs_cursor,
    recent,
    run_digest,
)
from turnwright_store.domain.viewers import viewer_in
from turnwright_store.ports import ANY_SCOPE, Database, Subscription
from turnwright_store.sql import control as rows
from turnwright_store.sql.control import RunStand, names_since
from turnwright_store.sql.entries import batched
from turnwright_store.sql.leases import read_now
from turnwright_store.sql.registry import ProjectRow, get_project
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
    """One message of a watch; one without runs and aliases is a heartbeat."""

    snapshot: list[RunOverview] = field(default_factory=list)
    part: int | None = None
    """Number of a part of the snapshot."""
    is_last: bool = False
    created: list[RunOverview] = field(default_factory=list)
    updated: list[RunOverview] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    cursor: str = ""


class RunsWatch(Struct):
    """What a watcher of a project was sent, by the scope of each run."""

    database: Database
    subscription: Subscription
    owner: ProjectRow
    incarnation: str
    after: RunsCursor | None
    """From where the watcher goes on; None: from nothing."""
    is_begun: bool = False
    at_ms: int = 0
    """The moment of the latest read."""
    runs: dict[int, tuple[RunMark, str]] = field(default_factory=dict)
    running: dict[int, tuple[bool, SessionState]] = field(default_factory=dict)
    """For running runs: whether they are held, and what they are doing; both change without a commit."""
    latest: dict[str, int] = field(default_factory=dict)
    """When runs that were sent were written, by alias, as far as a cursor has to tell."""
    gone: dict[str, int] = field(default_factory=dict)
    """When aliases were sent as gone, as far as a cursor has to tell."""
    strangers: set[int] = field(default_factory=set)
    """Scopes that belong to no run of the project and need not be asked for again."""
    pause_s: float = PAUSE_S

    def heartbeat(self) -> RunsChange:
        return RunsChange(cursor=self._cursor())

    async def read(self, *, is_woken: bool, is_due: bool) -> AsyncIterator[RunsChange]:  # noqa: ARG002 - as others
        """The snapshot at first, or what was missed since a cursor; then differences to what was sent."""
        if not self.is_begun:
            self.is_begun = True
            missed = await self.database.read(partial(_missed, watch=self)) if self.after else None
            async for change in self._snapshot() if missed is None else self._catch_up(missed):
                yield change
            return
        woken_by = self.subscription.take()
        asked = set(self.running) if is_due else set()
        is_anew = woken_by is None or ANY_SCOPE in woken_by
        if woken_by is None:
            self.at_ms, stands = await self.database.read(partial(_stands, owner=self.owner))
            marks = {one.scope: one.mark for one in stands}
            sent = {scope: mark for scope, (mark, _) in self.runs.items()}
            asked |= {scope for scope in marks.keys() | sent.keys() if marks.get(scope) != sent.get(scope)}
        else:
            asked |= woken_by if is_anew else woken_by - self.strangers
        async for change in self._differences(asked):
            yield change
        if is_anew:
            self.strangers.clear()

    async def _snapshot(self) -> AsyncIterator[RunsChange]:
        before = _LAST_ID
        for part in count():
            at_ms, found = await self.database.read(partial(_page, owner=self.owner, before=before))
            # What is written while its parts are read comes after it.
            self.at_ms = self.at_ms or at_ms
            self._mark_sent(found)
            is_last = len(found) < RUNS_PER_PAGE
            cursor = self._cursor() if is_last else ""
            yield RunsChange([overview for _, overview in found], part, is_last, cursor=cursor)
            if is_last:
                return
            before = found[-1][0].id

    async def _catch_up(self, missed: Missed) -> AsyncIterator[RunsChange]:
        """What happened since the cursor; from then on this watch knows what its caller knows."""
        self.at_ms, self.runs = missed.at_ms, missed.known
        self.latest, self.gone = missed.latest, missed.gone
        self.running = dict.fromkeys(missed.running, _NOBODY_KNOWS)
        async for change in self._differences(missed.asked, missed.deleted):
            yield change

    async def _differences(self, asked: Collection[int], deleted: Collection[str] = ()) -> AsyncIterator[RunsChange]:
        """The differences between runs as they are now and what was sent; the last of them has the cursor.

        `deleted`: aliases that are gone besides.
        """
        last, at_ms = None, 0
        for aliases in batched(sorted(deleted), RUNS_PER_PAGE):
            if last:
                yield last
            last = RunsChange(deleted=list(aliases))
        for scopes in batched(sorted(asked), RUNS_PER_PAGE):
            read_ms, found = await self.database.read(partial(_changed, owner=self.owner, scopes=scopes))
            at_ms = at_ms or read_ms
            change = self._difference(scopes, found, read_ms)
            if change.created or change.updated or change.deleted:
                if last:
                    yield last
                last = change
        self.at_ms = at_ms or self.at_ms
        if last:
            yield replace(last, cursor=self._cursor())

    def _difference(self, asked: Sequence[int], found: Sequence[tuple[RunRow, RunOverview]], at_ms: int) -> RunsChange:
        news = [(row, overview) for row, overview in found if self._is_changed(row, overview)]
        present = {row.scope for row, _ in found}
        gone = [scope for scope in asked if scope not in present and scope in self.runs]
        deleted = [self.runs.pop(scope)[1] for scope in gone]
        for scope in gone:
            self.running.pop(scope, None)
        if len(self.strangers) > STRANGERS_MAX:
            self.strangers.clear()
        self.strangers.update(scope for scope in asked if scope not in present)
        deleted += [self.runs[row.scope][1] for row, _ in news if self._is_renamed(row)]
        created = [overview for row, overview in news if row.scope not in self.runs or self._is_renamed(row)]
        updated = [overview for row, overview in news if row.scope in self.runs and not self._is_renamed(row)]
        self._mark_sent(news)
        # An alias that another run has by now was sent as that one's, in this message or an earlier one.
        used = {alias for _, alias in self.runs.values()} if deleted else set()
        deleted = [alias for alias in deleted if alias not in used]
        for alias in deleted:
            self.latest.pop(alias, None)
            self.gone[alias] = at_ms
        return RunsChange(created=created, updated=updated, deleted=deleted)

    def _is_changed(self, row: RunRow, overview: RunOverview) -> bool:
        now = _running(overview)
        return self.runs.get(row.scope) != _mark(row, overview) or self.running.get(row.scope, now) != now

    def _is_renamed(self, row: RunRow) -> bool:
        return row.scope in self.runs and self.runs[row.scope][1] != row.run.run

    def _mark_sent(self, found: Sequence[tuple[RunRow, RunOverview]]) -> None:
        for row, overview in found:
            self.runs[row.scope] = _mark(row, overview)
            self.gone.pop(row.run.run, None)
            self.latest[row.run.run] = row.run.update_ms
            self.running.pop(row.scope, None)
            if row.run.status == RUNNING:
                self.running[row.scope] = _running(overview)

    def _cursor(self) -> str:
        """The moment up to which everything was sent."""
        self.latest = recent(self.latest, self.at_ms)
        self.gone = recent(self.gone, self.at_ms)
        known = {run_digest(scope, name): mark for scope, (mark, name) in self.runs.items() if name in self.latest}
        gone = frozenset(map(alias_digest, self.gone))
        return encode_runs_cursor(RunsCursor(self.incarnation, self.owner.id, self.at_ms, known, gone))


class Missed(Struct, frozen=True):
    """What a watcher that goes on from a cursor knows, and what it does not."""

    at_ms: int
    known: dict[int, tuple[RunMark, str]]
    """Runs that it knows, by scope, and as what; unchanged ones and others."""
    running: list[int]
    asked: list[int]
    """Scopes of runs that it may not know as they are now."""
    deleted: set[str]
    latest: dict[str, int]
    gone: dict[str, int]


_NOBODY_KNOWS: Final = (False, SessionState.UNSPECIFIED)
_OUTDATED: Final = RunMark(0, 0)


def _missed(connection: Connection, watch: RunsWatch) -> Missed | None:
    """None if that cannot be told any more."""
    after = watch.after
    at_ms, stands = _stands(connection, watch.owner)
    if not after or after.incarnation != watch.incarnation or not 0 <= at_ms - after.since_ms <= CURSOR_KEPT_MS:
        return None
    names = names_since(connection, watch.owner.id, after.since_ms)
    known = {one.scope: (mark, one.alias) for one in stands if (mark := _known_mark(after, one, names))}
    running = [one.scope for one in stands if one.is_running and one.scope in known]
    deleted = names - {one.alias for one in stands}
    if deleted and viewer_in(watch.owner.project.name) is not None:
        # Nobody knows any more whose private runs had such a name.
        return None
    return Missed(
        at_ms,
        known,
        running,
        [one.scope for one in stands if known.get(one.scope) != (one.mark, one.alias) or one.is_running],
        {alias for alias in deleted if alias_digest(alias) not in after.gone},
        recent({one.alias: one.update_ms for one in stands}, at_ms),
        dict.fromkeys(deleted, at_ms),
    )


def _known_mark(after: RunsCursor, run: RunStand, names: Collection[str]) -> RunMark | None:
    """How the holder of a cursor knows a run; None: not at all."""
    known = after.known.get(run_digest(run.scope, run.alias)) if run.create_ms <= after.at_ms else None
    if known:
        return known
    if run.create_ms >= after.since_ms or run.alias in names:
        return None
    return _OUTDATED if run.update_ms >= after.since_ms else run.mark


async def watch_runs(database: Database, project: str, incarnation: str, after: str) -> RunsWatch:
    """Begin a watch of the runs of a project. Raises PROJECT_NOT_FOUND, INVALID_FIELD."""
    owner = await database.read(partial(get_project, name=project))
    cursor = decode_runs_cursor(after, owner.id) if after else None
    return RunsWatch(database, database.subscribe((ANY_SCOPE,)), owner, incarnation, cursor)


def _digest_of(row: RunRow) -> int:
    return run_digest(row.scope, row.run.run)


def list_cursor(connection: Connection, page: RunPage, incarnation: str) -> str:
    """The cursor of a list that begins with this page, for one who knows its runs as they are now."""
    at_ms = read_now(connection)
    latest = recent({row.run.run: row.run.update_ms for row in page.rows}, at_ms)
    shown = [row for row in page.rows if row.run.run in latest]
    waiting = rows.count_proposals(connection, [row.id for row in shown])
    known = {_digest_of(row): RunMark(row.run.revision, waiting.get(row.id, 0)) for row in shown}
    return encode_runs_cursor(RunsCursor(incarnation, page.project_id, at_ms, known, frozenset()))


def _stands(connection: Connection, owner: ProjectRow) -> tuple[int, list[RunStand]]:
    return read_now(connection), rows.run_stands(connection, owner)


def _page(connection: Connection, owner: ProjectRow, before: int) -> tuple[int, list[tuple[RunRow, RunOverview]]]:
    at_ms = read_now(connection)
    return at_ms, _with_proposals(connection, rows.runs_before(connection, owner, before, RUNS_PER_PAGE))


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


def _changed(
    connection: Connection, owner: ProjectRow, scopes: Sequence[int]
) -> tuple[int, list[tuple[RunRow, RunOverview]]]:
    at_ms = read_now(connection)
    return at_ms, _with_proposals(connection, rows.runs_of_scopes(connection, owner, scopes))


def _running(overview: RunOverview) -> tuple[bool, SessionState]:
    return overview.run.held, overview.run.state


def _mark(row: RunRow, overview: RunOverview) -> tuple[RunMark, str]:
    return RunMark(row.run.revision, overview.proposals), row.run.run
