"""Queries of file adoption: the files that a run sees, and copying views from another run."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal_column,
    select,
)
from turnwright_values.types import State, ViewFilter, Visibility

from turnwright_store.sql.entries import BODY_HASH, ENTRY, HEAD, IS_CURRENT, seen_now
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.tables import entries, runs, versions, views
from turnwright_store.sql.views import condition

_STORED: Final = versions.c.stored_bytes == versions.c.body_size_bytes + views.c.chunk_bytes
_SEEN: Final = (
    seen_now(views.c.path, case((_STORED, BODY_HASH))).where(condition(ViewFilter.FILES)).order_by(views.c.path)
)


_LIKE_RUN: Final = (
    select(runs.c.id)
    .where(
        runs.c.project_id == bindparam("project"),
        runs.c.alias == bindparam("like_run"),
        runs.c.removed_ms == literal_column("0"),
    )
    .scalar_subquery()
)


def _given(name: str) -> ColumnElement[int]:
    return cast(bindparam(name), BigInteger)


_ADOPTED: Final[dict[str, ColumnElement[Any]]] = {
    "run_id": _given("child"),
    "entry_id": views.c.entry_id,
    "path": views.c.path,
    "from_rev": _given("new_revision"),
    "visibility": literal_column(str(int(Visibility.ARCHIVED))),
    "state": literal_column(str(int(State.RESOLVED))),
    "turn": _given("new_turn"),
    "loop": _given("new_loop"),
    "position": _given("new_positions") + func.row_number().over(order_by=views.c.path),
    "write_count": literal_column("1"),
    "create_ms": _given("new_now_ms"),
}


def _of_source(*columns: Any) -> Any:
    return (
        select(*columns)
        .select_from(views)
        .join(entries, ENTRY)
        .where(
            views.c.run_id == _LIKE_RUN,
            IS_CURRENT,
            entries.c.scope_id == bindparam("project_scope"),
            condition(ViewFilter.FILES),
        )
    )


_ADOPT: Final = insert(views).from_select(
    list(_ADOPTED), _of_source(*(value.label(name) for name, value in _ADOPTED.items()))
)
_WHOLE: Final = versions.c.stored_bytes == versions.c.body_size_bytes
_ADOPTABLE: Final = (
    _of_source(views.c.path, case((_WHOLE, BODY_HASH)))
    .join(versions, HEAD)
    .order_by(views.c.path)
    .limit(bindparam("most"))
)


class AdoptedViews(Struct, frozen=True):
    """Stamps for the views of adopted files."""

    revision: int
    turn: int
    loop: int
    positions: int
    """The last position in the run's timeline before them."""
    now_ms: int


def files_seen(connection: Connection, run_id: int) -> list[tuple[str, str]]:
    """Paths of the files that a run sees, with hashes of their bodies; empty if a hash is not computed yet."""
    return [(path, digest or "") for path, digest in connection.execute(_SEEN, {"run_id": run_id})]


def _source(run: RunHead, like_run: str) -> dict[str, Any]:
    return {"project": run.project_id, "project_scope": run.project_scope, "like_run": like_run}


def adoptable(connection: Connection, run: RunHead, like_run: str, most: int) -> list[tuple[str, str]]:
    """The same for what a run adopts from another: files of its project, as they are now; the first ones of them."""
    values = {**_source(run, like_run), "most": most}
    return [(path, digest or "") for path, digest in connection.execute(_ADOPTABLE, values)]


def adopt(connection: Connection, run: RunHead, like_run: str, made: AdoptedViews) -> None:
    """Give a run views of the project's files that another run sees; they follow the heads of the entries."""
    stamps = {f"new_{name}": value for name, value in asdict(made).items()}
    connection.execute(_ADOPT, {"child": run.id, **_source(run, like_run), **stamps})
