"""Rows of the audit. No statement changes one; only the oldest are deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Connection, bindparam, delete, func, insert, literal_column, select, tuple_

from turnwright_store.sql.clauses import number, unanswered
from turnwright_store.sql.tables import audit, projects

_FIELDS: Final = (
    "time_ms", "principal", "kind", "proof", "token_id", "by", "peer", "method", "run", "right", "request_id", "detail",
)  # fmt: skip
_PROJECT: Final = func.coalesce(
    select(projects.c.id).where(projects.c.name == bindparam("in_project")).scalar_subquery(), literal_column("0")
)
"""The id of a project by its name; 0: it is about none."""

_ADD: Final = unanswered(
    insert(audit).inline().values(project_id=_PROJECT, **{name: bindparam(f"new_{name}") for name in _FIELDS})
)
_PLACE: Final = (audit.c.time_ms, audit.c.id)
_LIST: Final = (
    select(audit.c.id, *(audit.c[name] for name in _FIELDS))
    .where(
        audit.c.project_id == _PROJECT,
        audit.c.time_ms >= number("since_ms"),
        tuple_(*_PLACE) < tuple_(number("before_ms"), number("before_id")),
    )
    .order_by(audit.c.time_ms.desc(), audit.c.id.desc())
    .limit(bindparam("page"))
)
# By the numbers of rows, in whose order they were written, so that no second index is kept for this alone.
_OLDEST: Final = select(audit.c.id, audit.c.time_ms).order_by(audit.c.id).limit(bindparam("page")).subquery()
_DROP: Final = delete(audit).where(
    audit.c.id.in_(select(_OLDEST.c.id).where(_OLDEST.c.time_ms < bindparam("before_ms")))
)


class AuditRow(Struct, frozen=True):
    """Who has changed something. The fields are those of turnwright.audits.v1.AuditRow."""

    time_ms: int
    principal: str
    kind: str
    proof: str
    token_id: str
    by: str
    peer: str
    method: str
    run: str
    right: int
    request_id: str
    detail: str
    """A JSON object; empty: nothing."""


def add(connection: Connection, project: str, row: AuditRow) -> None:
    values: dict[str, Any] = {f"new_{name}": value for name, value in asdict(row).items()}
    connection.execute(_ADD, {"in_project": project, **values})


def list_rows(
    connection: Connection, project: str, since_ms: int, before: tuple[int, int], page: int
) -> Iterator[tuple[int, AuditRow]]:
    """Rows of a project with their numbers, the latest first, from those before a time and a number."""
    values = {"in_project": project, "since_ms": since_ms, "before_ms": before[0], "before_id": before[1], "page": page}
    return ((number, AuditRow(*row)) for number, *row in connection.execute(_LIST, values))


def drop_old(connection: Connection, before_ms: int, rows_max: int) -> int:
    """Delete those of the first rows that are older; returns how many."""
    return connection.execute(_DROP, {"before_ms": before_ms, "page": rows_max}).rowcount
