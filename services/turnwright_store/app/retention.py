"""Removal of runs: a tombstone at once, then deletion of the rows in the background.

Theory of operation. A removed run keeps its row under another alias until everything else is deleted. First its views,
turns, packets and loops, then unused blocks of the project. Then its entries, except the versions that a younger run of
its family sees, now or in its history. These are found on a reader connection before the deletion: the set can only
shrink, because a removed run cannot be forked. Then the versions of shared entries that were replaced before the oldest
run was created. Last, when no fork needs it, the run's row and its scope.

What runs share. A run only reads versions of shared entries since its creation, so a version that was replaced
before the oldest run was created is unused. Which blocks are in use is stored in the layouts, which SQL cannot search.
So this is mark and sweep: all layouts of the project are read first, on a reader connection. Each transaction that
deletes then reads the layouts stored since, under the lock that storing a packet takes.

Packets are compressed against the bodies that they show. No such body is deleted before its packet: it is in the
history of the run, and the history of an existing run is not deleted. Source: architecture 3 (retention removes whole
runs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from sqlalchemy import Connection
from turnwright_values.store import Durability
from turnwright_values.types import Right

from turnwright_core.checks import transition_forbidden
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.maintenance import ROWS_MAX, Chore, row_chore
from turnwright_store.domain.locks import GLOBAL_LOCK, NAMES_LOCK, packets_lock, project_lock, run_lock
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.packets import own_blocks
from turnwright_store.domain.runs_cursor import CURSOR_KEPT_MS
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import ANY_SCOPE, Database, Transaction, Work
from turnwright_store.sql import retention as rows
from turnwright_store.sql.agents import reopen_agents
from turnwright_store.sql.control import add_name_change, drop_name_changes
from turnwright_store.sql.leases import read_now
from turnwright_store.sql.retention import Relatives, RemovedRun, SeenVersions
from turnwright_store.sql.runs import RunRow, find_run, get_run
from turnwright_store.sql.scopes import bump_scope

T = TypeVar("T")

OLD_RUNS_EVERY_S: Final = 600.0
"""Seconds between two checks for old runs."""

NAMES_CLEANUP_EVERY_S: Final = 3600.0
"""Seconds between two rounds that delete old changes of names."""

NAMES_ROWS_MAX: Final = 1000
"""Changes of names that one transaction deletes at most."""

_ROWS_A_PIECE: Final = 500
_MARGIN_MS: Final = 60_000
"""Transactions carry the time at which they began, and may commit out of order."""

_DAY_MS: Final = 24 * 3600 * 1000


def remove_run(tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef) -> None:
    """Mark a run as removed; its alias is free. Raises RUN_NOT_FOUND, TRANSITION_FORBIDDEN.

    Raises RIGHT_MISSING for the run of somebody else, unless the caller may manage runs.
    """
    run = get_run(tx.connection, address.project, address.run)
    if run.by != caller.name:
        rules.check_right(
            caller, Right.MANAGE, address.project, f"To delete {address.run}, which you have not created,"
        )
    if run.loop_active or run.run.loops_queued:
        message = f"{address.run} has a loop that has not ended: abort it, and wait until it has."
        raise transition_forbidden("run", run.run.status, "removed", message)
    mark_removed(tx, run)


def mark_removed(tx: Transaction, run: RunRow) -> None:
    """Mark a run as removed; its agents follow it."""
    # Wakes watchers, whose next read fails with RUN_NOT_FOUND.
    bump_scope(tx, run.scope)
    rows.mark_removed(tx.connection, run.id, run.scope, tx.now_ms)
    reopen_agents(tx.connection, run.id)
    add_name_change(tx, run.project_id, run.alias)


def aging(database: Database, days: int) -> Chore:
    """The chore that removes runs `days` after their last write."""

    def find(connection: Connection) -> list[tuple[str, str]]:
        return rows.old_runs(connection, read_now(connection) - days * _DAY_MS, ROWS_MAX)

    def remove(tx: Transaction, old: tuple[str, str]) -> None:
        run = find_run(tx.connection, *old)
        # It may have been written since it was found.
        if run is not None and rows.is_old(tx.connection, run.id, tx.now_ms - days * _DAY_MS):
            mark_removed(tx, run)

    def locks(project: str, run: str) -> set[str]:
        return {project_lock(project), run_lock(project, run)}

    return row_chore("aging", OLD_RUNS_EVERY_S, database, find, remove, locks)


class Purge:
    """Deletes the rows of removed runs, in many short transactions."""

    def __init__(self, database: Database, after_s: float) -> None:
        """Rows are kept for `after_s` seconds, for readers that have already begun."""
        self._database = database
        self._after_ms = round(after_s * 1000)
        self._settled: set[int] = set()
        """Removed runs of which everything is deleted that can be, until a younger run of their family is removed."""
        self._relatives: Mapping[int, Relatives] = {}
        """The families of removed runs at the last check."""

    async def step(self) -> bool:
        """Delete what can be deleted; returns whether to continue at once."""
        # Families may be large and nothing is written here, so this does not run on the writer.
        found, families = await self._database.read(partial(_removed_runs, after_ms=self._after_ms))
        lost = {
            family: _youngest_unread(relatives, families.get(family, ()))
            for family, relatives in self._relatives.items()
        }
        # New forks see nothing that their parents do not see: only a removal makes more rows deletable.
        self._settled = {run.id for run in found if run.id in self._settled and run.id >= lost.get(run.family, 0)}
        self._relatives = families
        waiting = [run for run in found if run.id not in self._settled]
        await self._empty(waiting, families)
        # The youngest first: an ancestor is kept while it has descendants.
        for run in sorted(waiting, key=lambda one: one.id, reverse=True):
            await self._write(run, partial(_drop_run, run=run))
            self._settled.add(run.id)
        return bool(waiting)

    async def _empty(self, waiting: Sequence[RemovedRun], families: Mapping[int, Relatives]) -> None:
        projects = {run.project_id: run.project for run in waiting}
        for run in waiting:
            while await self._write(run, partial(_drop_rows, run=run)):
                pass
        for project_id, project in projects.items():
            await sweep_blocks(self._database, project_id, project)
        for run in waiting:
            await self._drop_versions(run, families.get(run.family, ()))
        for project_id, project in projects.items():
            await sweep_versions(self._database, project_id, project_lock(project), self._after_ms)
        if waiting:
            await sweep_versions(self._database, None, GLOBAL_LOCK, self._after_ms)

    async def _drop_versions(self, run: RemovedRun, relatives: Relatives) -> None:
        held: SeenVersions = {}
        for one, is_reading in relatives:
            if is_reading and one > run.id:
                held = await self._database.read(
                    partial(rows.versions_seen_by, relatives=one, scope=run.scope, held=held)
                )
        after: str | None = ""
        while after is not None:
            after = await self._write(run, partial(_drop_unseen, scope=run.scope, after=after, held=held))

    async def _write(self, run: RemovedRun, work: Work[T]) -> T:
        return await self._database.write(work, Durability.NORMAL, {run_lock(run.project, run.alias)})


def _removed_runs(connection: Connection, after_ms: int) -> tuple[list[RemovedRun], dict[int, Relatives]]:
    """The runs that were removed this long ago, and their families."""
    before_ms = read_now(connection) - after_ms
    found = rows.removed_runs(connection, before_ms)
    return found, rows.related_runs(connection, (run.family for run in found), before_ms)


def _youngest_unread(before: Relatives, now: Relatives) -> int:
    """The youngest run of a family that has been removed or is no longer read; 0: none."""
    return max((run for run, _ in set(before) - set(now)), default=0)


def _drop_rows(tx: Transaction, run: RemovedRun) -> bool:
    return rows.drop_rows(tx.connection, run.id, _ROWS_A_PIECE)


def _drop_unseen(tx: Transaction, scope: int, after: str, held: SeenVersions) -> str | None:
    """Delete unused versions of some entries; returns the path to continue after, None at the end."""
    page = rows.entries_after(tx.connection, scope, after, _ROWS_A_PIECE)
    if not page:
        return None
    ids = {entry for entry, _ in page}
    if not rows.drop_versions(tx.connection, ids, held, _ROWS_A_PIECE):
        return after
    rows.drop_entries(tx.connection, ids - {entry for entry, _ in held})
    return page[-1][1]


def _drop_run(tx: Transaction, run: RemovedRun) -> None:
    if rows.drop_run(tx.connection, run):
        # SQLite may reuse the id of the scope: caches of scope ids must be invalidated.
        tx.revisions_before[ANY_SCOPE] = 0


async def sweep_versions(database: Database, project_id: int | None, lock: str, after_ms: int) -> None:
    """Delete versions of a project's (or the global) entries that were replaced before its oldest run was created.

    A run counts until `after_ms` milliseconds after its removal; a transaction may take as long, too.
    """

    def begin(connection: Connection) -> tuple[int, int]:
        now_ms = read_now(connection)
        oldest_ms = rows.oldest_run(connection, project_id, now_ms - after_ms)
        return rows.shared_scope(connection, project_id), (now_ms if oldest_ms is None else oldest_ms) - after_ms

    scope, before_ms = await database.read(begin)
    path = ""
    while page := await database.read(partial(rows.entries_after, scope=scope, after=path, page=_ROWS_A_PIECE)):
        query = partial(
            rows.replaced_versions, entries=[entry for entry, _ in page], before_ms=before_ms, page=_ROWS_A_PIECE
        )
        while replaced := await database.read(query):
            await database.write(partial(_drop_replaced, ids=replaced), Durability.NORMAL, {lock})
        path = page[-1][1]


def _drop_replaced(tx: Transaction, ids: list[int]) -> None:
    rows.drop_replaced(tx.connection, ids)


async def sweep_blocks(database: Database, project_id: int, project: str) -> None:
    """Delete a project's unused blocks, in many short transactions."""
    start_ms = await database.read(read_now)
    used: set[int] = set()
    latest: dict[int, int] = {}
    for run_id in await database.read(partial(rows.all_runs, project_id=project_id)):
        for turn, layout in await database.read(partial(rows.layouts_since, run_id=run_id, turn=0)):
            used |= own_blocks(layout)
            latest[run_id] = max(turn, latest.get(run_id, 0))
    sweep = partial(_sweep, project_id=project_id, since_ms=start_ms - _MARGIN_MS, used=used, latest=latest)
    after: str | None = ""
    while after is not None:
        after = await database.write(partial(sweep, after=after), Durability.NORMAL, {packets_lock(project)})


def _sweep(
    tx: Transaction, project_id: int, since_ms: int, used: set[int], latest: dict[int, int], after: str
) -> str | None:
    """Delete some; returns the digest to continue after, None at the end."""
    for run_id in rows.active_runs(tx.connection, project_id, since_ms):
        for _, layout in rows.layouts_since(tx.connection, run_id, latest.get(run_id, 0)):
            used |= own_blocks(layout)
    page = rows.blocks_after(tx.connection, project_id, after, _ROWS_A_PIECE)
    rows.drop_blocks(tx.connection, [block for _, block in page if block not in used])
    return page[-1][0] if page else None


def retention(database: Database, days: int, purge_after_s: float, purge_every_s: float) -> list[Chore]:
    """The chores that remove old runs (`days` 0: none), and what is left of removed ones."""
    chores = [Chore("purging", purge_every_s, Purge(database, purge_after_s).step), names_cleanup(database)]
    return [aging(database, days), *chores] if days else chores


def names_cleanup(database: Database) -> Chore:
    """The chore that deletes changes of names which no cursor asks for any more."""

    def drop(tx: Transaction) -> int:
        return drop_name_changes(tx.connection, tx.now_ms - CURSOR_KEPT_MS, NAMES_ROWS_MAX)

    async def step() -> bool:
        return await database.write(drop, Durability.NORMAL, {NAMES_LOCK}) == NAMES_ROWS_MAX

    return Chore("names", NAMES_CLEANUP_EVERY_S, step)
