"""Parts of statements that several modules use."""

from __future__ import annotations

from typing import Any

from turnwright_store.sql.core import BigInteger, BindParameter, Column, Select, bindparam, insert


def parameters(*columns: str) -> dict[str, BindParameter[Any]]:
    """A parameter for each of these columns, with its name: what an INSERT or an UPDATE writes."""
    return {column: bindparam(column) for column in columns}


def number(name: str) -> BindParameter[int]:
    """A parameter that is a revision, an id or a time."""
    return bindparam(name, type_=BigInteger)


def insertion(table: Any, *columns: str) -> tuple[Any, tuple[str, ...]]:
    """What `Connection.insert` takes: an INSERT of these columns, in the order of the table."""
    return insert(table).values(parameters(*columns)), columns


def rows_in_revisions(rows: Select[Any], revision: Column[int], number: Column[int]) -> Select[Any]:
    """A page of the rows after (`from_revision`, `from_number`), up to the revision `to`, in the order of writes."""
    return (
        rows.where(
            revision >= bindparam("from_revision"),
            (revision > bindparam("from_revision")) | (number > bindparam("from_number")),
            revision <= bindparam("to"),
        )
        .order_by(revision, number)
        .limit(bindparam("page"))
    )
