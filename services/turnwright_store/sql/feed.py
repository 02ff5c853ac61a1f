"""The change feed: what changed in a run's view between two moments, in pages, as of the later one.

Views that began and views that ended are two parts of one log, ordered by revision. The later moment is fixed while the
pages are read, however long that takes, so a reader of all pages has exactly the view of that moment. Source:
architecture 3 (revisions and the change feed), 12.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from turnwright_store.ports import Connection
from turnwright_store.sql.core import CompoundSelect, Select, and_, func, literal_column, or_, select, union_all
from turnwright_store.sql.history import AT_RUN, ENDED_SINCE, ENTRY_ROWS_AT, FROM_REV, OPEN_STILL, Moment, number
from turnwright_store.sql.keys import newest
from turnwright_store.sql.lazy_tables import entries, versions, views
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.views import (
    ENTRY,
    ENTRY_ROW,
    ENTRY_ROW_COLUMNS,
    KINDS,
    EntryRow,
    ViewKind,
    Wanted,
    filter_values,
    fits,
)

FeedPosition = tuple[int, int]
"""A position in the feed: a revision, and an id within it."""

END_OF_REVISION: Final = 2**63 - 1
"""Id that sorts after everything of its revision."""

_EMPTY: Final = {"path": "views.path", "scheme": "''", "outcome": "''"}

_now_views: Final = views.alias("now_views")
_now_entries: Final = entries.alias("now_entries")


def _removed(kind: ViewKind) -> Any:
    """Paths that were shown and no longer are: neither they nor their successors pass the filter."""
    now: Select[Any] = (
        select(func.count())
        .select_from(_now_views)
        .join(_now_entries, _now_entries.c.id == _now_views.c.entry_id)
        .where(
            _now_views.c.run_id == number("run_id"),
            _now_views.c.path == views.c.path,
            _now_views.c.from_rev + literal_column("0") <= AT_RUN,
            fits(kind, _now_views, _now_entries),
        )
    )
    nothing = [
        views.c.path if name == "path" else literal_column(_EMPTY.get(name, "0")).label(name) for name in ENTRY_ROW
    ]
    return (
        select(views.c.to_rev.label("at_rev"), views.c.id.label("row"), *nothing)
        .select_from(views)
        .join(entries, ENTRY)
        .where(
            views.c.run_id == number("run_id"),
            views.c.to_rev >= number("place_rev"),
            or_(views.c.to_rev > number("place_rev"), views.c.id > number("place_id")),
            views.c.to_rev <= AT_RUN,
            number("after") >= FROM_REV,
            fits(kind),
            # A count for each path that left: PostgreSQL turns NOT EXISTS into a join, and may scan all views for it.
            now.where(_now_views.c.to_rev.is_(None)).scalar_subquery() == literal_column("0"),
            now.where(_now_views.c.to_rev > AT_RUN).scalar_subquery() == literal_column("0"),
        )
    )


def _own(kind: ViewKind) -> CompoundSelect[Any]:
    shown = ENTRY_ROWS_AT.with_only_columns(
        views.c.from_rev.label("at_rev"), views.c.id.label("row"), *ENTRY_ROW_COLUMNS
    )
    behind = or_(views.c.from_rev > number("place_rev"), views.c.id > number("place_id"))
    opened = shown.where(
        OPEN_STILL,
        views.c.from_rev >= number("place_rev"),
        # SQLite searches by the first of two bounds; PostgreSQL needs a hint that its index covers the other.
        views.c.from_rev > literal_column("0"),
        behind,
        views.c.from_rev <= AT_RUN,
        fits(kind),
    )
    replaced = shown.where(ENDED_SINCE, number("place_rev") <= FROM_REV, behind, FROM_REV <= AT_RUN, fits(kind))
    return union_all(opened, replaced, _removed(kind)).order_by("at_rev", "row").limit(number("page"))


_there: Final = versions.alias("there")
_HEAD_AT: Final = (
    select(func.max(_there.c.id))
    .where(newest(entries.c.id, number("at_shared"), _there))
    .correlate(entries)
    .scalar_subquery()
)


def _moved(kind: ViewKind) -> CompoundSelect[Any]:
    shown = (
        select(versions.c.from_rev.label("at_rev"), views.c.id.label("row"), *ENTRY_ROW_COLUMNS)
        .select_from(entries)
        .join(views, and_(views.c.run_id == number("run_id"), views.c.path == entries.c.path))
        .join(versions, versions.c.id == _HEAD_AT)
        .where(
            entries.c.scope_id == number("scope"),
            entries.c.shared_rev >= number("place_rev"),
            entries.c.shared_rev > literal_column("0"),
            versions.c.from_rev >= number("place_rev"),
            or_(versions.c.from_rev > number("place_rev"), views.c.id > number("place_id")),
            views.c.entry_id == entries.c.id,
            number("after") >= FROM_REV,
            fits(kind),
        )
    )
    return union_all(shown.where(OPEN_STILL), shown.where(ENDED_SINCE)).order_by("at_rev", "row").limit(number("page"))


_OWN: Final = {kind: _own(kind) for kind in KINDS}
_MOVED: Final = {kind: _moved(kind) for kind in KINDS}


class FeedPage(Struct, frozen=True):
    """A page of the feed."""

    shown: list[EntryRow]
    removed: list[str]
    next: FeedPosition | None
    """Where the next page begins; None: there is none."""


class Feed:
    """The feed for a reader that has everything up to a revision of a run."""

    def __init__(
        self, connection: Connection, run: RunHead, to: Moment, after: int, wanted: Wanted, hidden: Sequence[str]
    ) -> None:
        """`to` is the end of the feed, `hidden` the schemes that no packet shows."""
        self._connection = connection
        self._kind, self._values = filter_values(run, wanted, hidden)
        self._values |= {**to.values(run.project_scope), "after": after}

    def section(self, scope: int, to: int, position: FeedPosition, page: int) -> FeedPage:
        """The changes after a position, in order of revision.

        `scope` 0: views of the run that began or ended. A shared scope: entries with a newer version, up to the
        revision `to`, even if the run's view is older.
        """
        if not scope:
            return self._changed(_OWN[self._kind], position, page)
        return self._changed(_MOVED[self._kind], position, page, scope=scope, at_shared=to)

    def _changed(self, statement: CompoundSelect[Any], position: FeedPosition, page: int, **values: int) -> FeedPage:
        given = {**self._values, **values, "place_rev": position[0], "place_id": position[1], "page": page}
        rows = self._connection.execute(statement, given).all()
        changed = FeedPage([], [], (rows[-1][0], rows[-1][1]) if len(rows) == page else None)
        for _revision, _row, path, *rest in rows:
            shown = EntryRow(path, *rest)
            if shown.content:
                changed.shown.append(shown)
            else:
                changed.removed.append(path)
        return changed
