"""Rows of file constraints of projects, and whether entries of a scheme exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import asdict
from sqlalchemy import Connection, bindparam, delete, exists, select
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.entries import batched
from turnwright_store.sql.registry import counting
from turnwright_store.sql.tables import entries, file_constraints, scopes

# One look into the index of each scope: entries have no index by scheme.
_USED: Final = (
    select(scopes.c.id)
    .where(
        exists().where(
            entries.c.scope_id == scopes.c.id, entries.c.path >= bindparam("low"), entries.c.path < bindparam("high")
        )
    )
    .limit(1)
)
_OF_PROJECT: Final = file_constraints.c.project_id == bindparam("project")
count_constraints: Final = counting(file_constraints)
_PAGE: Final = (
    select(file_constraints.c.pattern, file_constraints.c.kind, file_constraints.c.create_ms)
    .where(_OF_PROJECT, file_constraints.c.pattern > bindparam("after"))
    .order_by(file_constraints.c.pattern)
    .limit(bindparam("page"))
)
_ADD: Final = insertion(file_constraints)
_REMOVE: Final = delete(file_constraints).where(
    _OF_PROJECT, file_constraints.c.pattern.in_(bindparam("patterns", expanding=True))
)


def is_scheme_used(connection: Connection, name: str) -> bool:
    """Whether there is an entry of a scheme, in whichever scope."""
    # `0` follows `/`: the end of the paths that begin with the scheme's prefix.
    return connection.execute(_USED, {"low": f"{name}://", "high": f"{name}:/0"}).first() is not None


def list_constraints(connection: Connection, project_id: int, after: str, page: int) -> list[FileConstraint]:
    """Constraints of a project by pattern, those after a pattern."""
    values = {"project": project_id, "after": after, "page": page}
    return [
        FileConstraint(pattern, FileConstraintKind[kind.upper()], create_ms)
        for pattern, kind, create_ms in connection.execute(_PAGE, values)
    ]


def put_constraints(connection: Connection, project_id: int, wanted: Sequence[FileConstraint]) -> None:
    """Add constraints, replacing those with the same pattern; no pattern stands twice in the list."""
    if not wanted:
        return
    remove_constraints(connection, project_id, [one.pattern for one in wanted])
    connection.execute(
        _ADD, [{"project_id": project_id, **asdict(one), "kind": one.kind.name.lower()} for one in wanted]
    )


def remove_constraints(connection: Connection, project_id: int, patterns: Sequence[str]) -> None:
    """Take constraints away; patterns without one are passed over."""
    for part in batched(patterns):
        connection.execute(_REMOVE, {"project": project_id, "patterns": part})
