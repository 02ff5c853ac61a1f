"""Plans as a run sees them: their entries, versions and deltas, each by a range of paths in the run's view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from turnwright_core.plans.plan import SCHEME
from turnwright_store.ports import Connection
from turnwright_store.sql.core import (
    BigInteger,
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    not_,
    null,
    select,
    union_all,
)
from turnwright_store.sql.keys import is_version
from turnwright_store.sql.lazy_tables import CURRENT_PLANS, versions, views

_PLANS_A_STATEMENT: Final = 100

_ALL: Final = {"low": f"{SCHEME}://", "high": f"{SCHEME}://\U0010ffff"}

_AFTER_SLASH: Final = "0"
"""The character after `/`: where the paths that begin with a slash end."""


class PlanRow(Struct, frozen=True):
    """One entry of a plan: the plan itself, an earlier version or a delta."""

    path: str
    attributes: str
    body_size_bytes: int
    create_ms: int
    content: int
    """Id of the version of the entry."""
    body: str = ""
    """Read with the piece where one is asked for by its path."""


class CurrentPlan(Struct, frozen=True):
    """The latest version of a plan, and the size of the run's other plans."""

    head: PlanRow | None
    """With its body; None: there is no such plan."""
    deltas: list[PlanRow]
    """Those of the latest version."""
    others: int
    """How many other plans there are."""
    others_bytes: int
    """Bytes of the other plans with the deltas of their latest versions."""


# Plans live in their run's scope, so that each view pins a version.
_PIECE: Final[Select[Any]] = (
    select(
        views.c.path,
        versions.c.attributes,
        versions.c.body_size_bytes,
        versions.c.create_ms,
        versions.c.id,
    )
    .select_from(views)
    .join(versions, is_version(views.c.entry_id, views.c.version_rev))
    .where(views.c.run_id == bindparam("run_id"))
)


def _below(low: str, high: str) -> ColumnElement[bool]:
    return and_(views.c.path >= bindparam(low), views.c.path < bindparam(high))


_CURRENT: Final = _PIECE.where(views.c.to_rev.is_(None))
_BY_PATH: Final = _CURRENT.where(views.c.path == bindparam("wanted")).add_columns(versions.c.body)
_UNDER: Final = _CURRENT.where(_below("low", "high")).order_by(views.c.path)
# Deltas and earlier versions have a slash behind the identity.
_IS_HEAD: Final = views.c.path.not_like(f"{SCHEME}://%/%")
_HEADS: Final = (
    _CURRENT.where(views.c.path > bindparam("after"), _below("low", "high"), _IS_HEAD)
    .order_by(views.c.path)
    .limit(bindparam("page"))
)
# One statement, because each one is waited for: the plan, its deltas, and a row that counts the others.
_CURRENT_PIECES: Final = union_all(
    _BY_PATH,
    _PIECE.where(CURRENT_PLANS, _below("own_low", "own_high")).add_columns(null()),
    _PIECE.with_only_columns(
        literal_column("''"),
        literal_column("'{}'"),
        cast(func.coalesce(func.sum(versions.c.body_size_bytes), 0), BigInteger),
        literal_column("0"),
        func.count(case((_IS_HEAD, 1))),
        null(),
    ).where(CURRENT_PLANS, views.c.path != bindparam("wanted"), not_(_below("own_low", "own_high"))),
)
_CURRENT_BODIES: Final = _PIECE.with_only_columns(views.c.path, versions.c.body).where(CURRENT_PLANS)
_BODIES: Final = select(versions.c.id, versions.c.body).where(versions.c.id.in_(bindparam("ids", expanding=True)))


def _pieces(rows: Any) -> list[PlanRow]:
    return [PlanRow(*row) for row in rows]


def find_plan_row(connection: Connection, run_id: int, path: str) -> PlanRow | None:
    """The view of a path, with its body."""
    found = _pieces(connection.execute(_BY_PATH, {"run_id": run_id, "wanted": path}))
    return found[0] if found else None


def list_plan_rows(connection: Connection, run_id: int, path: str) -> list[PlanRow]:
    """The views below a path."""
    values = {"run_id": run_id, "low": f"{path}/", "high": f"{path}{_AFTER_SLASH}"}
    return _pieces(connection.execute(_UNDER, values))


def current_plan(connection: Connection, run_id: int, path: str) -> CurrentPlan:
    """The plan at a path, without earlier versions, and the size of the run's other plans."""
    own = {"wanted": path, "own_low": f"{path}/", "own_high": f"{path}{_AFTER_SLASH}"}
    by_path = {piece.path: piece for piece in _pieces(connection.execute(_CURRENT_PIECES, {"run_id": run_id, **own}))}
    others, head = by_path.pop(""), by_path.pop(path, None)
    return CurrentPlan(head, [*by_path.values()], others.content, others.body_size_bytes)


def current_bodies(connection: Connection, run_id: int, without: str) -> Iterator[str]:
    """The texts of the plans of a run and of their latest deltas, but those of the plan at a path; empty: of all."""
    for path, body in connection.execute(_CURRENT_BODIES, {"run_id": run_id}):
        if not (without and (path == without or path.startswith(f"{without}/"))):
            yield body


def plan_heads(connection: Connection, run_id: int, after: str) -> Iterator[PlanRow]:
    """The plans that a run sees, by path, those after a path."""
    values = {"run_id": run_id, **_ALL, "page": _PLANS_A_STATEMENT}
    while found := _pieces(connection.execute(_HEADS, {**values, "after": after})):
        yield from found
        after = found[-1].path


def load_plan_bodies(connection: Connection, pieces: Sequence[PlanRow]) -> list[str]:
    if not pieces:
        return []
    rows = connection.execute(_BODIES, {"ids": [piece.content for piece in pieces]})
    found = {row[0]: row[1] for row in rows}
    return [found[piece.content] for piece in pieces]
