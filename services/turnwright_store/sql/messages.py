"""Messages of a run by position, and when one before a position has changed last.

Source: decision C40.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection, bindparam, func, literal_column, select

from turnwright_core.chat.timeline import MESSAGE_SCHEMES
from turnwright_store.sql.clauses import number
from turnwright_store.sql.entries import ENTRY, IN_RUN, IS_CURRENT
from turnwright_store.sql.tables import entries, views
from turnwright_store.sql.views import CURRENT_ROWS, HAS_ENDED, EntryRow, entry_rows

PAGE: Final = 1000
"""Entries that are read at once."""

LAST: Final = 2**62
"""Behind every place."""

_IS_MESSAGE: Final = entries.c.scheme.in_(MESSAGE_SCHEMES)
_BY_POSITION: Final = (
    CURRENT_ROWS.where(_IS_MESSAGE, views.c.position > number("after"))
    .order_by(views.c.position)
    .limit(bindparam("page"))
)
_LATEST_PROMPT: Final = (
    CURRENT_ROWS.where(
        views.c.path >= literal_column("'prompt://'"),
        views.c.path < literal_column("'prompt:/0'"),
        views.c.position < number("before"),
    )
    .order_by(views.c.position.desc())
    .limit(literal_column("1"))
)
_BEFORE: Final = (IN_RUN, views.c.position <= number("until"), _IS_MESSAGE)
_OPENED: Final = select(func.max(views.c.from_rev)).select_from(views).join(entries, ENTRY).where(*_BEFORE, IS_CURRENT)
_CLOSED: Final = select(func.max(views.c.to_rev)).select_from(views).join(entries, ENTRY).where(*_BEFORE, HAS_ENDED)


def pages_by_position(connection: Connection, run_id: int, after: int = 0) -> Iterator[list[EntryRow]]:
    """Candidates for messages after a position, in order, in pages."""
    while True:
        values = {"run_id": run_id, "after": after, "page": PAGE}
        page = entry_rows(connection.execute(_BY_POSITION, values))
        yield page
        if len(page) < PAGE:
            return
        after = page[-1].position


def last_change(connection: Connection, run_id: int, position: int | None) -> int:
    """The latest revision at which something up to a place in the order of messages changed; None: up to the end."""
    values = {"run_id": run_id, "until": LAST if position is None else position}
    found = [connection.execute(statement, values).scalar_one() or 0 for statement in (_OPENED, _CLOSED)]
    return max(found)


def latest_prompt(connection: Connection, run_id: int, before: int) -> EntryRow | None:
    """The last prompt before a place in the order of messages."""
    found = entry_rows(connection.execute(_LATEST_PROMPT, {"run_id": run_id, "before": before}))
    return found[0] if found else None
