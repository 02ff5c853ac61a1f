"""Rewinding a run's view: three statements, whatever the number of entries.

Views are intervals, so an earlier moment is still stored: views that began since are closed, and those that ended since
are opened again with their versions and positions. Only the run's own and inherited entries are touched, never shared
ones.
Source: architecture 4 (truncation), 3 (versions, views); rows RC04, RC05; decision C49.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    exists,
    insert,
    literal_column,
    or_,
    select,
    union_all,
    update,
)

from turnwright_store.sql.clauses import number
from turnwright_store.sql.columns import not_zero
from turnwright_store.sql.forks import COPIED_COLUMNS, seen_at
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.tables import entries, views
from turnwright_store.sql.views import MESSAGES_OF

KEPT_SCHEMES: Final = ("run", "draft", "command", "image")
"""What stays as it is: what was asked of the run, and what somebody has not sent yet."""

_IS_OWN: Final = and_(
    entries.c.id == views.c.entry_id,
    entries.c.scope_id.not_in(bindparam("shared", expanding=True)),
    entries.c.scheme.not_in(KEPT_SCHEMES),
)


def _of_own(*more: ColumnElement[bool]) -> ColumnElement[bool]:
    """The view is of an entry that may be rewound."""
    return exists(select(literal_column("1")).select_from(entries).where(_IS_OWN, *more).correlate(views))


_OWN: Final = _of_own()
_IS_MESSAGE: Final = _of_own(entries.c.scheme.in_(MESSAGES_OF))

_then: Final = views.alias("then_seen")
_at: Final = number("at")


def _was_seen(*more: ColumnElement[bool]) -> ColumnElement[bool]:
    """At the moment the path had a view; of each half of the intervals its own index is asked."""
    there: Select[Any] = select(literal_column("1")).select_from(_then)
    of_path = and_(_then.c.run_id == number("source"), _then.c.path == views.c.path, _then.c.from_rev <= _at, *more)
    return or_(
        exists(there.where(of_path, _then.c.to_rev.is_(None)).correlate(views)),
        exists(there.where(of_path, not_zero(_then.c.to_rev), _then.c.to_rev > _at).correlate(views)),
    )


_SAME_VERSION: Final = and_(
    _then.c.entry_id == views.c.entry_id,
    _then.c.version_rev == views.c.version_rev,
    _then.c.chunk_bytes == views.c.chunk_bytes,
)
_CLOSE: Final = (
    update(views)
    .where(
        views.c.run_id == number("run_is"),
        views.c.to_rev.is_(None),
        views.c.from_rev > number("since"),
        _OWN,
    )
    .values(to_rev=number("now"))
)
_CLOSE_FROM: Final = _CLOSE.where(views.c.position >= number("from_position"))
_CLOSE_BEFORE: Final = _CLOSE.where(
    views.c.position < number("from_position"),
    or_(
        and_(~_IS_MESSAGE, _was_seen()),
        # A message that was written anew since stays so; one that was only demoted is shown again.
        and_(_IS_MESSAGE, _was_seen(_SAME_VERSION)),
    ),
)

_current: Final = views.alias("current_seen")
_IS_GONE: Final = ~exists(
    select(literal_column("1"))
    .select_from(_current)
    .where(
        _current.c.run_id == number("child"),
        _current.c.path == views.c.path,
        _current.c.to_rev.is_(None),
    )
    .correlate(views)
)
_WAS_CLOSED: Final = exists(
    select(literal_column("1"))
    .select_from(_current)
    .where(
        _current.c.run_id == number("child"),
        _current.c.path == views.c.path,
        not_zero(_current.c.to_rev),
        _current.c.to_rev == number("first"),
    )
    .correlate(views)
)


_SEEN_THEN: Final = seen_at(
    _at,
    _OWN,
    _IS_GONE,
    # A message that was taken away before stays away.
    or_(number("from_position") == literal_column("0"), ~_IS_MESSAGE, _WAS_CLOSED),
)
# SQLAlchemy keeps the number of rows of an UPDATE and a DELETE, but not that of an INSERT.
_ADD: Final = insert(views).execution_options(preserve_rowcount=True)
_REOPEN: Final = _ADD.from_select(list(COPIED_COLUMNS), union_all(*_SEEN_THEN))
_REOPEN_OWN: Final = _ADD.from_select(list(COPIED_COLUMNS), _SEEN_THEN[1])


class RewindTarget(Struct, frozen=True):
    """The moment to return to: the view of `source` at a revision of its scope; 0 is before everything."""

    source: int
    revision: int


def rewind_views(
    connection: Connection, run: RunHead, moment: RewindTarget, position: int, now: int
) -> tuple[int, int]:
    """Go back to a moment, without the messages from a position on; 0: exactly to the moment.

    Returns how many views were closed, and how many opened again.
    """
    is_own = moment.source == run.id
    shared = [run.project_scope, run.global_scope]
    values = {"source": moment.source, "at": moment.revision, "from_position": position, "shared": shared}
    since = moment.revision if is_own else -1
    closing = {"run_is": run.id, "since": since, "now": now, "from_position": position, "shared": shared}
    closed = connection.execute(_CLOSE_FROM, closing).rowcount
    if position:
        closed += connection.execute(_CLOSE_BEFORE, {**values, **closing}).rowcount
    opened = connection.execute(_REOPEN_OWN if is_own else _REOPEN, {**values, "child": run.id, "first": now}).rowcount
    return closed, opened
