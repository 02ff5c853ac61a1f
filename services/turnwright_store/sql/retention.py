"""Deletion of the rows of removed runs, and of what runs share, in bounded steps; what other runs still see stays.

Source: architecture 3 (a version lives while a kept view interval or turn needs it; retention removes whole runs).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    update,
)
from turnwright_values.types import State

from turnwright_store.sql.columns import not_zero
from turnwright_store.sql.entries import batched
from turnwright_store.sql.keys import is_of, number_in
from turnwright_store.sql.tables import (
    agents,
    approval_rules,
    blocks,
    chunks,
    entries,
    loops,
    packets,
    projects,
    reservations,
    runs,
    schedules,
    scopes,
    search_marks,
    turns,
    versions,
    views,
)

_MARK: Final[ColumnElement[str]] = literal_column("'~'")
_RENAMED: Final = runs.c.alias + _MARK + cast(runs.c.id, Text)
_REMOVE: Final = (
    update(runs)
    .where(runs.c.id == bindparam("run"))
    .values(alias=_RENAMED, removed_ms=bindparam("now_ms"), lease_owner="", lease_address="", lease_expires_ms=0)
)
_FREE_KEY: Final = (
    update(scopes)
    .where(scopes.c.id == bindparam("scope"))
    .values(key=scopes.c.key + _MARK + cast(bindparam("run"), Text))
)
_child: Final = runs.alias("child")
_above: Final = runs.alias("above")
_IN_USE: Final = (
    or_(runs.c.loop_active > 0, runs.c.loops_queued > 0),
    exists(select(schedules.c.id).where(schedules.c.run_id == runs.c.id)),
    # A proposal that waits, of a loop or of nobody; output that grows. PostgreSQL would make a join of `exists`.
    select(views.c.id)
    .where(
        views.c.run_id == runs.c.id,
        views.c.to_rev.is_(None),
        views.c.state.in_([number_in(State.PROPOSED), number_in(State.STREAMING)]),
    )
    .limit(literal_column("1"))
    .scalar_subquery()
    .is_not(None),
    exists(
        select(_child.c.id).where(
            _child.c.project_id == runs.c.project_id,
            _child.c.forked_from_run == runs.c.alias,
            # The alias may have been that of an earlier run, which has other children.
            _child.c.id > runs.c.id,
            _child.c.removed_ms == literal_column("0"),
        )
    ),
    # An agent goes with the run that started it.
    exists(
        select(agents.c.id)
        .join(_above, _above.c.id == agents.c.run_id)
        .where(agents.c.agent_id == runs.c.id, _above.c.removed_ms == literal_column("0"))
    ),
)
"""What points at a run and can still act (C64). What is added to the database and can make a run act belongs here."""

_IS_OLD: Final = and_(
    runs.c.removed_ms == literal_column("0"),
    *(~use for use in _IN_USE),
    runs.c.update_ms < bindparam("before_ms"),
    # Writes of entries leave the run's own row as it is.
    ~exists(
        select(views.c.id).where(
            views.c.run_id == runs.c.id,
            views.c.to_rev.is_(None),
            views.c.from_rev > runs.c.revision,
            views.c.create_ms >= bindparam("before_ms"),
        )
    ),
)
_OLD: Final = (
    select(projects.c.name, runs.c.alias)
    .join(projects, projects.c.id == runs.c.project_id)
    .where(_IS_OLD)
    .order_by(runs.c.id)
    .limit(bindparam("page"))
)
_IS_THIS_OLD: Final = select(runs.c.id).where(runs.c.id == bindparam("run"), _IS_OLD)
_REMOVED: Final = (
    select(runs.c.id, runs.c.project_id, projects.c.name, runs.c.alias, runs.c.scope_id, runs.c.lineage)
    .join(projects, projects.c.id == runs.c.project_id)
    .where(not_zero(runs.c.removed_ms), runs.c.removed_ms <= bindparam("before_ms"))
    .order_by(runs.c.removed_ms, runs.c.id)
)
_RELATIVES: Final = (
    select(runs.c.lineage, runs.c.id, runs.c.removed_ms)
    # The eldest is missing: it has inherited nothing.
    .where(runs.c.lineage.in_(bindparam("families", expanding=True)), not_zero(runs.c.lineage))
    .order_by(runs.c.id)
)


def _some(table: Table, column: ColumnElement[int], *condition: ColumnElement[bool]) -> Delete:
    """Delete the rows of a run, a bounded number."""
    run = table.c.run_id == bindparam("run")
    return delete(table).where(run, column.in_(select(column).where(run, *condition).limit(bindparam("rows_max"))))


RUN_ROWS: Final = (
    # Each half has an index of its own.
    _some(views, views.c.id, views.c.to_rev.is_(None)),
    _some(views, views.c.id, views.c.to_rev.is_not(None)),
    _some(turns, turns.c.number),
    _some(packets, packets.c.turn),
    _some(loops, loops.c.id),
    # The others go with their agents.
    _some(agents, agents.c.id, agents.c.settled != literal_column("0")),
    _some(schedules, schedules.c.id),
    _some(approval_rules, approval_rules.c.id),
    _some(reservations, reservations.c.id),
)
"""What goes with a removed run: rows of each table that has a `run_id`."""


def _held(half: ColumnElement[bool]) -> Select[Any]:
    return (
        select(views.c.entry_id, views.c.version_rev, func.max(views.c.chunk_bytes))
        .join(entries, entries.c.id == views.c.entry_id)
        .where(views.c.run_id == bindparam("run"), half, entries.c.scope_id == bindparam("scope"))
        .group_by(views.c.entry_id, views.c.version_rev)
    )


_HELD: Final = (_held(views.c.to_rev.is_(None)), _held(views.c.to_rev.is_not(None)))
_ENTRIES: Final = (
    select(entries.c.id, entries.c.path)
    .where(entries.c.scope_id == bindparam("scope"), entries.c.path > bindparam("after"))
    .order_by(entries.c.path)
    .limit(bindparam("page"))
)
_VERSIONS: Final = (
    select(versions.c.id, versions.c.entry_id, versions.c.from_rev)
    .select_from(entries)
    .join(versions, is_of(entries.c.id))
    .where(entries.c.id.in_(bindparam("entries", expanding=True)))
    .limit(bindparam("page"))
)
_DROP_CHUNKS: Final = delete(chunks).where(
    chunks.c.entry_id == bindparam("entry"),
    chunks.c.version_rev == bindparam("rev"),
    chunks.c.offset >= bindparam("from_byte"),
)
_DROP_VERSIONS: Final = delete(versions).where(versions.c.id.in_(bindparam("ids", expanding=True)))
_DROP_ENTRIES: Final = delete(entries).where(entries.c.id.in_(bindparam("ids", expanding=True)))
_HAS_ENTRIES: Final = select(entries.c.id).where(entries.c.scope_id == bindparam("scope")).limit(1)
_HAS_CHILDREN: Final = (
    select(runs.c.id)
    .where(
        runs.c.lineage == bindparam("family"),
        not_zero(runs.c.lineage),
        runs.c.id > bindparam("run"),
        runs.c.forked_from_run == bindparam("alias"),
    )
    .limit(1)
)
_DROP_MARK: Final = delete(search_marks).where(search_marks.c.scope_id == bindparam("scope"))
_DROP_RUN: Final = delete(runs).where(runs.c.id == bindparam("run"))
_DROP_SCOPE: Final = delete(scopes).where(scopes.c.id == bindparam("scope"))

Relatives = tuple[tuple[int, bool], ...]
"""Ids of the runs of a family that have inherited, the elder first, each with whether it can still be read."""

SeenVersions = Mapping[tuple[int, int], int]
"""Versions that somebody sees, as (entry, revision), each with the bytes of chunks that are seen on top."""


class RemovedRun(Struct, frozen=True):
    """A run that was removed and has rows left."""

    id: int
    project_id: int
    project: str
    alias: str
    """As it is stored: the alias that it had, `~`, its id."""
    scope: int
    lineage: int

    @property
    def family(self) -> int:
        return self.lineage or self.id


def mark_removed(connection: Connection, run_id: int, scope: int, now_ms: int) -> None:
    """Take a run out of sight and free its alias."""
    connection.execute(_REMOVE, {"run": run_id, "now_ms": now_ms})
    connection.execute(_FREE_KEY, {"run": run_id, "scope": scope})


def old_runs(connection: Connection, before_ms: int, page: int) -> list[tuple[str, str]]:
    return [(project, alias) for project, alias in connection.execute(_OLD, {"before_ms": before_ms, "page": page})]


def is_old(connection: Connection, run_id: int, before_ms: int) -> bool:
    return _exists(connection, _IS_THIS_OLD, {"run": run_id, "before_ms": before_ms})


def removed_runs(connection: Connection, before_ms: int) -> list[RemovedRun]:
    return [RemovedRun(*row) for row in connection.execute(_REMOVED, {"before_ms": before_ms})]


def related_runs(connection: Connection, families: Iterable[int], before_ms: int) -> dict[int, Relatives]:
    """The runs of some families that may have inherited; those that were removed after a time are read still."""
    found: dict[int, list[tuple[int, bool]]] = {}
    for part in batched(set(families)):
        for family, relatives, removed_ms in connection.execute(_RELATIVES, {"families": part}):
            found.setdefault(family, []).append((relatives, not removed_ms or removed_ms > before_ms))
    return {family: tuple(relatives) for family, relatives in found.items()}


def drop_rows(connection: Connection, run_id: int, rows_max: int) -> bool:
    """Delete a bounded number of views, turns, packets and loops of a run; returns whether there were any."""
    values = {"run": run_id, "rows_max": rows_max}
    return sum(connection.execute(statement, values).rowcount for statement in RUN_ROWS) > 0


def versions_seen_by(connection: Connection, relatives: int, scope: int, held: SeenVersions) -> SeenVersions:
    """Add to `held` the entries of another run's scope that a run sees, now or in its history."""
    found = dict(held)
    for half in _HELD:
        for entry, rev, chunk_bytes in connection.execute(half, {"run": relatives, "scope": scope}):
            found[entry, rev] = max(found.get((entry, rev), 0), chunk_bytes)
    return found


def entries_after(connection: Connection, scope: int, after: str, page: int) -> list[tuple[int, str]]:
    """Entries of a scope in path order, those after a path: id and path."""
    values = {"scope": scope, "after": after, "page": page}
    return [(entry, path) for entry, path in connection.execute(_ENTRIES, values)]


def drop_versions(connection: Connection, among: Collection[int], held: SeenVersions, rows_max: int) -> bool:
    """Delete a bounded number of unused versions of some entries; returns whether none is left."""
    kept = {at: end for at, end in held.items() if at[0] in among}
    found = connection.execute(_VERSIONS, {"entries": list(among), "page": rows_max + len(kept)}).all()
    unseen = [row for row in found if (row[1], row[2]) not in kept]
    cuts = [*((entry, rev, 0) for _, entry, rev in unseen), *((entry, rev, end) for (entry, rev), end in kept.items())]
    if cuts:
        values: list[dict[str, Any]] = [{"entry": entry, "rev": rev, "from_byte": end} for entry, rev, end in cuts]
        connection.execute(_DROP_CHUNKS, values)
    _drop(connection, _DROP_VERSIONS, (row[0] for row in unseen))
    return len(found) < rows_max + len(kept)


def drop_entries(connection: Connection, ids: Iterable[int]) -> None:
    _drop(connection, _DROP_ENTRIES, ids)


def _drop(connection: Connection, statement: Delete, ids: Iterable[int]) -> None:
    for part in batched(ids):
        connection.execute(statement, {"ids": part})


def drop_run(connection: Connection, run: RemovedRun) -> bool:
    """Delete the rows of a run and its scope, unless its entries are visible elsewhere or it has forks."""
    alias = run.alias.removesuffix(f"~{run.id}")
    if _exists(connection, _HAS_ENTRIES, {"scope": run.scope}):
        return False
    if _exists(connection, _HAS_CHILDREN, {"family": run.family, "run": run.id, "alias": alias}):
        return False
    for statement in (_DROP_MARK, _DROP_RUN, _DROP_SCOPE):
        connection.execute(statement, {"run": run.id, "scope": run.scope})
    return True


def _exists(connection: Connection, statement: Any, values: dict[str, Any]) -> bool:
    rows: Sequence[Any] = connection.execute(statement, values).all()
    return bool(rows)


# ---- What runs share: blocks of packets, and versions of shared entries

_RUNS: Final = select(runs.c.id).where(runs.c.project_id == bindparam("project"))
# A turn writes its run's row when it begins and when it ends.
_ACTIVE: Final = _RUNS.where(or_(runs.c.turn_open > 0, runs.c.update_ms >= bindparam("since_ms")))
_SINCE: Final = select(packets.c.turn, packets.c.layout).where(
    packets.c.run_id == bindparam("run"), packets.c.turn >= bindparam("from_turn")
)
_BLOCKS: Final = (
    select(blocks.c.digest, blocks.c.id)
    .where(blocks.c.project_id == bindparam("project"), blocks.c.digest > bindparam("after"))
    .order_by(blocks.c.digest)
    .limit(bindparam("page"))
)
_DROP_BLOCKS: Final = delete(blocks).where(blocks.c.id.in_(bindparam("ids", expanding=True)))

_PROJECT_SCOPE: Final = select(projects.c.scope_id).where(projects.c.id == bindparam("project"))
_GLOBAL_SCOPE: Final = select(scopes.c.id).where(scopes.c.key == "global")
_CAN_BE_READ: Final[ColumnElement[bool]] = or_(runs.c.removed_ms == 0, runs.c.removed_ms > bindparam("before_ms"))
_OLDEST: Final = select(func.min(runs.c.create_ms)).where(_CAN_BE_READ)
_OLDEST_OF_PROJECT: Final = _OLDEST.where(runs.c.project_id == bindparam("project"))
_next: Final = versions.alias("next")
_REPLACED: Final = (
    select(versions.c.id)
    .select_from(entries)
    .join(versions, is_of(entries.c.id))
    .where(
        entries.c.id.in_(bindparam("entries", expanding=True)),
        exists(
            select(_next.c.id).where(
                is_of(entries.c.id, _next),
                _next.c.id > versions.c.id,
                _next.c.create_ms < bindparam("before_ms"),
            )
        ),
    )
    .limit(bindparam("page"))
)


def all_runs(connection: Connection, project_id: int) -> list[int]:
    return list(connection.execute(_RUNS, {"project": project_id}).scalars())


def active_runs(connection: Connection, project_id: int, since_ms: int) -> list[int]:
    return list(connection.execute(_ACTIVE, {"project": project_id, "since_ms": since_ms}).scalars())


def layouts_since(connection: Connection, run_id: int, turn: int) -> list[tuple[int, str]]:
    return [(number, layout) for number, layout in connection.execute(_SINCE, {"run": run_id, "from_turn": turn})]


def blocks_after(connection: Connection, project_id: int, digest: str, page: int) -> list[tuple[str, int]]:
    """Blocks of a project by digest, those after one: digest and id."""
    values = {"project": project_id, "after": digest, "page": page}
    return [(found, block) for found, block in connection.execute(_BLOCKS, values)]


def drop_blocks(connection: Connection, ids: Iterable[int]) -> None:
    _drop(connection, _DROP_BLOCKS, ids)


def shared_scope(connection: Connection, project_id: int | None) -> int:
    """Id of a project's scope; None: of the global one."""
    if project_id is None:
        return int(connection.execute(_GLOBAL_SCOPE).scalar_one())
    return int(connection.execute(_PROJECT_SCOPE, {"project": project_id}).scalar_one())


def oldest_run(connection: Connection, project_id: int | None, before_ms: int) -> int | None:
    """When the oldest run of a project, or of all, was created, among those not removed before a time."""
    values = {"before_ms": before_ms}
    if project_id is None:
        found: int | None = connection.execute(_OLDEST, values).scalar_one()
    else:
        found = connection.execute(_OLDEST_OF_PROJECT, {**values, "project": project_id}).scalar_one()
    return found


def replaced_versions(connection: Connection, entries: Iterable[int], before_ms: int, page: int) -> list[int]:
    """Versions of some entries that were replaced by a newer one before a time."""
    values = {"entries": list(entries), "before_ms": before_ms, "page": page}
    return list(connection.execute(_REPLACED, values).scalars())


def drop_replaced(connection: Connection, ids: Iterable[int]) -> None:
    _drop(connection, _DROP_VERSIONS, ids)
