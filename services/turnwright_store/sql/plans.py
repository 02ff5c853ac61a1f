"""The plans that a run sees: their latest versions with deltas, however many versions are kept."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, and_, bindparam, or_, select

from turnwright_store.sql.contents import VersionContent, rows_with_content, with_content
from turnwright_store.sql.entries import IN_RUN, VISIBLE_VERSIONS
from turnwright_store.sql.tables import CURRENT_PLANS, views
from turnwright_store.sql.views import EntryRow

_IS_OF_PLAN: Final = or_(
    views.c.path == bindparam("wanted"), and_(views.c.path >= bindparam("low"), views.c.path < bindparam("high"))
)
# One statement, because each one is waited for.
_CURRENT: Final = select(*with_content(_IS_OF_PLAN)).select_from(VISIBLE_VERSIONS).where(IN_RUN, CURRENT_PLANS)


def current_plans(
    connection: Connection, run_id: int, path: str = ""
) -> tuple[list[EntryRow], dict[int, VersionContent]]:
    """The rows of all plans, and the contents of the one at a path."""
    # The character after a slash: where the paths that begin with one end.
    values = {"run_id": run_id, "wanted": path, "low": f"{path}/", "high": f"{path}0"}
    return rows_with_content(connection.execute(_CURRENT, values))
