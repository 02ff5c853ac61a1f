"""What differs between databases: checks that only one of them can say.

Everything else in this package is portable SQL. Triggers stand in the migrations, which know their dialect.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint


def json_object(column: str) -> CheckConstraint:
    """The column holds JSON text (RU051)."""
    # json_valid(NULL) is 0 before SQLite 3.45 and NULL after it.
    return CheckConstraint(f"{column} IS NULL OR json_valid({column})", name=f"{column}_json").ddl_if(dialect="sqlite")
