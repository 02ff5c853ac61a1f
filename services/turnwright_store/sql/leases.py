"""Queries of leases: which owner holds which run until when, and the workspaces of executors.

A lease is stored in the row of its run, so that claiming, renewing and releasing cost no row of their own. Source:
architecture 3 (the lease belongs to the run; expiry on the database's clock); docs/adr/0006.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy import Connection, and_, bindparam, case, delete, func, literal_column, or_, select, update

from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.dialect import DatabaseNow
from turnwright_store.sql.tables import executors, projects, runs

IS_CLAIMED: Final = runs.c.lease_owner != literal_column("''")
"""The run was claimed and not released; a separate condition, so that its index is used."""

IS_LEASED: Final = and_(IS_CLAIMED, runs.c.lease_expires_ms + bindparam("grace_ms") > DatabaseNow())
"""The lease or its grace period has not expired."""

IS_FREE: Final = or_(
    runs.c.lease_owner == literal_column("''"),
    runs.c.lease_expires_ms + bindparam("grace_ms") <= DatabaseNow(),
)

_HAS_TURN: Final = runs.c.turn_open > literal_column("0")
_OWNER_LIVES: Final = (
    select(literal_column("1"))
    .where(executors.c.owner == runs.c.lease_owner, executors.c.expires_ms > DatabaseNow())
    .correlate(runs)
    .exists()
)
_WAS_LOST: Final = and_(_HAS_TURN, IS_CLAIMED, runs.c.lease_owner != bindparam("owner_is"), ~_OWNER_LIVES)
"""Another owner had the run in the middle of a turn, and died. One that could not renew it while the store was away
has been heard of since."""

_ONE_MORE: Final = case((runs.c.lost_turn == runs.c.turn_open, runs.c.losses + 1), else_=1)
_CLAIM: Final = (
    update(runs)
    .where(runs.c.id == bindparam("run_id"))
    .values(
        lease_owner=bindparam("owner_is"),
        lease_address=bindparam("address"),
        lease_expires_ms=bindparam("expires_ms"),
        lease_epoch=runs.c.lease_epoch + 1,
        losses=case((_WAS_LOST, _ONE_MORE), else_=runs.c.losses),
        lost_turn=case((_WAS_LOST, runs.c.turn_open), else_=runs.c.lost_turn),
    )
    .returning(
        runs.c.lease_epoch,
        case((and_(_HAS_TURN, runs.c.lost_turn == runs.c.turn_open), runs.c.losses), else_=0),
    )
)
_HELD: Final = (
    select(projects.c.name, runs.c.alias, runs.c.id, runs.c.lease_epoch, runs.c.abort_requested)
    .join(projects, projects.c.id == runs.c.project_id)
    .where(
        IS_CLAIMED,
        runs.c.lease_owner == bindparam("owner"),
        runs.c.removed_ms == literal_column("0"),
        runs.c.alias.in_(bindparam("aliases", expanding=True)),
    )
)
_RENEW: Final = (
    update(runs)
    .where(runs.c.id.in_(bindparam("ids", expanding=True)))
    .values(lease_expires_ms=bindparam("expires_ms"), lease_address=bindparam("address"))
)
_FREE: Final = {"lease_owner": "", "lease_address": "", "lease_expires_ms": 0}
_RELEASE: Final = update(runs).where(runs.c.id == bindparam("run_id")).values(_FREE)
_COUNT_LOST: Final = update(runs).where(IS_CLAIMED, _HAS_TURN).values(losses=_ONE_MORE, lost_turn=runs.c.turn_open)
_IS_ANY_CLAIMED: Final = select(runs.c.id).where(IS_CLAIMED).limit(1)
_RELEASE_ALL: Final = update(runs).where(IS_CLAIMED).values(_FREE)

_EXECUTOR_RENEW: Final = update(executors).where(executors.c.owner == bindparam("owner_is"))
_EXECUTOR_ADD: Final = insertion(executors)
_EXECUTORS_DROP_ALL: Final = delete(executors)
_EXECUTORS_DROP: Final = delete(executors).where(executors.c.expires_ms < bindparam("before_ms"))
_OFFERS: Final = select(executors.c.workspaces).where(executors.c.expires_ms + bindparam("grace_ms") > DatabaseNow())
_NOW: Final = select(DatabaseNow())
_REGISTERED: Final = select(func.count()).select_from(executors).where(executors.c.workspaces != literal_column("'[]'"))


def read_now(connection: Connection) -> int:
    """The database's clock, for readers."""
    return int(connection.execute(_NOW).scalar_one())


class HeldLease(Struct, frozen=True):
    """A run as its owner holds it."""

    id: int
    epoch: int
    abort_requested: bool


def claim(connection: Connection, run_id: int, owner: str, address: str, expires_ms: int) -> tuple[int, int]:
    """The new epoch of a run's lease, and how many owners the open turn has lost."""
    values = {"run_id": run_id, "owner_is": owner, "address": address, "expires_ms": expires_ms}
    epoch, losses = connection.execute(_CLAIM, values).one()
    return int(epoch), int(losses)


def find_held_leases(connection: Connection, owner: str, aliases: Collection[str]) -> dict[tuple[str, str], HeldLease]:
    """Runs with these aliases that the owner holds, by project and alias."""
    rows = connection.execute(_HELD, {"owner": owner, "aliases": sorted(set(aliases))})
    return {(project, alias): HeldLease(*held) for project, alias, *held in rows}


def renew(connection: Connection, ids: Sequence[int], address: str, expires_ms: int) -> None:
    if ids:
        connection.execute(_RENEW, {"ids": list(ids), "address": address, "expires_ms": expires_ms})


def release(connection: Connection, run_id: int) -> None:
    connection.execute(_RELEASE, {"run_id": run_id})


def is_any_claimed(connection: Connection) -> bool:
    """Whether a run was claimed and not released."""
    return connection.execute(_IS_ANY_CLAIMED).first() is not None


def release_all(connection: Connection) -> None:
    """Release every run and forget every executor; owners in the middle of a turn have lost it."""
    connection.execute(_COUNT_LOST)
    connection.execute(_RELEASE_ALL)
    connection.execute(_EXECUTORS_DROP_ALL)


def put_executor(
    connection: Connection, owner: str, address: str, workspaces: Collection[str], expires_ms: int
) -> bool:
    """Store what an executor reports about itself; returns whether it was new."""
    named = json.dumps(sorted(set(workspaces)), ensure_ascii=False)
    values = {"address": address, "workspaces": named, "expires_ms": expires_ms}
    is_known = connection.execute(_EXECUTOR_RENEW, {"owner_is": owner, **values}).rowcount
    if not is_known:
        connection.execute(_EXECUTOR_ADD, {"owner": owner, **values})
    return not is_known


def drop_executors(connection: Connection, before_ms: int) -> None:
    connection.execute(_EXECUTORS_DROP, {"before_ms": before_ms})


def offered_workspaces(connection: Connection, grace_ms: int) -> set[str] | None:
    """The workspaces of living executors; None if one of them accepts any."""
    tool_descriptors = [json.loads(text) for text in connection.execute(_OFFERS, {"grace_ms": grace_ms}).scalars()]
    return set().union(*tool_descriptors) if all(tool_descriptors) else None


def has_registered_workspaces(connection: Connection) -> bool:
    """Whether a remembered executor has ever named its workspaces."""
    return bool(connection.execute(_REGISTERED).scalar_one())
