"""When aliases began and ceased to name runs, as far as the rows of runs do not tell it.

A run that is removed frees its alias at once and its row goes later, one that is renamed keeps nothing of its old name,
and one that is imported is as old as its document.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from turnwright_store.ports import Transaction
from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.tables import run_names

_ADD: Final = insertion(run_names)
_SINCE: Final = select(run_names.c.alias).where(
    run_names.c.project_id == bindparam("project"), run_names.c.change_ms >= bindparam("since_ms")
)
_OLD: Final = select(run_names.c.id).where(run_names.c.change_ms < bindparam("before_ms")).limit(bindparam("rows_max"))
_DROP: Final = delete(run_names).where(run_names.c.id.in_(_OLD))


def add_name_change(tx: Transaction, project_id: int, *aliases: str) -> None:
    """Note that each of these names a run from now on, or none any more."""
    values = [{"project_id": project_id, "alias": alias, "change_ms": tx.now_ms} for alias in aliases]
    tx.connection.execute(_ADD, values)


def names_since(connection: Connection, project_id: int, since_ms: int) -> set[str]:
    """Aliases that began or ceased to name a run, however often."""
    return set(connection.execute(_SINCE, {"project": project_id, "since_ms": since_ms}).scalars())


def drop_name_changes(connection: Connection, before_ms: int, rows_max: int) -> int:
    """Delete old ones, a bounded number; returns how many."""
    return connection.execute(_DROP, {"before_ms": before_ms, "rows_max": rows_max}).rowcount
