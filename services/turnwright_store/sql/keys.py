"""Keys of versions: composed of the entry and the revision of its scope, so both identify the row.

Source: docs/adr/0010.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, and_, literal_column

from turnwright_store.domain.limits import REVISIONS_OF_ENTRY
from turnwright_store.sql.tables import versions

_REVISIONS: Final[ColumnElement[int]] = literal_column(str(REVISIONS_OF_ENTRY))


def version_key(entry: int, revision: int) -> int:
    """Key of the version that an entry got at a revision of its scope."""
    return entry * REVISIONS_OF_ENTRY + revision


def key_in_sql(entry: ColumnElement[int], revision: ColumnElement[int]) -> ColumnElement[int]:
    """The same for two columns."""
    return entry * _REVISIONS + revision


def is_version(entry: ColumnElement[int], revision: ColumnElement[int]) -> ColumnElement[bool]:
    """Condition: the version of an entry at a revision; one look-up in the table."""
    found: ColumnElement[bool] = versions.c.id == key_in_sql(entry, revision)
    return found


def is_of(entry: ColumnElement[int], table: Any = versions) -> ColumnElement[bool]:
    """Condition: a version of an entry; these are adjacent, ordered by revision."""
    return and_(table.c.id >= entry * _REVISIONS, table.c.id < entry * _REVISIONS + _REVISIONS)


def newest(entry: ColumnElement[int], until: ColumnElement[int], table: Any) -> ColumnElement[bool]:
    """Condition: a version of an entry that existed at a revision."""
    return and_(table.c.id >= entry * _REVISIONS, table.c.id <= entry * _REVISIONS + until)


def number_in(value: int) -> ColumnElement[int]:
    """A literal in the statement: only then is a partial index with it used."""
    return literal_column(str(int(value)))
