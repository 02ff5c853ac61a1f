"""Parts of statements that several modules use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from sqlalchemy import BigInteger, BindParameter, Column, Insert, Select, Table, UpdateBase, bindparam, insert

from turnwright_store.ports import UNANSWERED

S = TypeVar("S", bound=UpdateBase)


def parameters(*columns: str) -> dict[str, BindParameter[Any]]:
    """New values of columns that stand in expressions too, as parameters `new_...`.

    A parameter named like a column is what SQLAlchemy calls a value of this column. So other parameters of an INSERT or
    an UPDATE have other names.
    """
    return {column: bindparam(f"new_{column}") for column in columns}


def number(name: str) -> BindParameter[int]:
    """A parameter that is a revision, an id or a time."""
    return bindparam(name, type_=BigInteger)


def insertion(table: Table) -> Insert:
    """An INSERT of the columns that are passed to it, whose answer nobody reads."""
    return unanswered(insert(table).inline())


def unanswered(statement: S) -> S:
    """The statement as one whose answer nobody reads; its failure fails a later one, or the commit."""
    return statement.execution_options(**{UNANSWERED: True})


def picked(values: Mapping[str, Any], columns: Iterable[str]) -> dict[str, Any]:
    return {column: values[column] for column in columns}


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
