"""Rows of a run that know at which revision they were last written, read in that order, in pieces."""

from __future__ import annotations

from typing import Any

from turnwright_store.sql.core import Column, Select, bindparam


def rows_in_revisions(rows: Select[Any], revision: Column[int], number: Column[int]) -> Select[Any]:
    """A page of the rows after (`from_revision`, `from_number`), up to the revision `to`."""
    return (
        rows.where(
            revision >= bindparam("from_revision"),
            (revision > bindparam("from_revision")) | (number > bindparam("from_number")),
            revision <= bindparam("to"),
        )
        .order_by(revision, number)
        .limit(bindparam("page"))
    )
