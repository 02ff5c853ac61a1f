"""Queries for unused blocks of a project, and for unused versions of shared entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnwright_store.ports import Connection
from turnwright_store.sql.core import ColumnElement, bindparam, delete, exists, func, or_, select
from turnwright_store.sql.entries import batched
from turnwright_store.sql.keys import is_of
from turnwright_store.sql.lazy_tables import blocks, entries, packets, projects, runs, scopes, versions

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
_DROP: Final = delete(blocks).where(blocks.c.id.in_(bindparam("ids", expanding=True)))

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
_DROP_VERSIONS: Final = delete(versions).where(versions.c.id.in_(bindparam("ids", expanding=True)))


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
    for part in batched(ids):
        connection.execute(_DROP, {"ids": part})


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


def drop_versions(connection: Connection, ids: Iterable[int]) -> None:
    for part in batched(ids):
        connection.execute(_DROP_VERSIONS, {"ids": part})
