"""The change feed: what changed in a run's view between two moments, in pages, as of the later one.

Views that began and views that ended are two parts of one log, ordered by revision. The later moment is fixed while the
pages are read, however long that takes, so a reader of all pages has exactly the view of that moment. Source:
architecture 3 (revisions and the change feed), 12.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct, field
from sqlalchemy import CompoundSelect, Connection, Select, and_, func, literal_column, or_, select, union_all
from turnwright_values.types import Cursor, Loop, Turn

from turnwright_store.sql.clauses import number
from turnwright_store.sql.entries import ENTRY, IN_RUN, IS_CURRENT
from turnwright_store.sql.keys import newest
from turnwright_store.sql.loops import changed_loops
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.tables import entries, versions, views
from turnwright_store.sql.turns import changed_turns
from turnwright_store.sql.views import (
    AT_RUN,
    ENDED_SINCE,
    ENTRY_ROW,
    ENTRY_ROW_COLUMNS,
    FROM_REV,
    KINDS,
    ROWS_AT,
    EntryRow,
    ViewKind,
    Wanted,
    filter_values,
    fits,
    moment_of,
)

END_OF_REVISION: Final = 2**63 - 1
"""Id that sorts after everything of its revision."""

LOOPS_PER_PAGE: Final = 4
"""Loops to read at a time; a prompt may have 1 MiB."""

TURNS_PER_PAGE: Final = 200
"""Turns to read at a time; each has about a kilobyte."""

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
            IN_RUN,
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
    shown = ROWS_AT.with_only_columns(views.c.from_rev.label("at_rev"), views.c.id.label("row"), *ENTRY_ROW_COLUMNS)
    behind = or_(views.c.from_rev > number("place_rev"), views.c.id > number("place_id"))
    opened = shown.where(
        IS_CURRENT,
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
    return union_all(shown.where(IS_CURRENT), shown.where(ENDED_SINCE)).order_by("at_rev", "row").limit(number("page"))


_OWN: Final = {kind: _own(kind) for kind in KINDS}
_MOVED: Final = {kind: _moved(kind) for kind in KINDS}


_Place = tuple[int, int]
"""A revision, and an id within it."""


class FeedPosition(Struct, frozen=True):
    """Where a page begins: at one of the feed's parts, and behind a place in it; None: at its beginning."""

    part: int = 0
    place: _Place | None = None


class FeedPage(Struct):
    """A page of the feed. Bodies are not loaded yet."""

    shown: list[EntryRow] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    next: FeedPosition | None = None
    """Where the next page begins; None: there is none."""


_Part = tuple[Callable[[FeedPage, _Place, int, int], _Place | None], int, int]
"""What reads changes of one kind, and the revisions between which there are some."""


class Feed:
    """What began or ended between two cursors of a run: views, then loops and turns if these are wanted.

    A part that has not changed is not read; rows that were written again after the end belong to a later feed.
    """

    def __init__(
        self,
        connection: Connection,
        run: RunHead,
        after: Cursor,
        to: Cursor,
        wanted: Wanted,
        hidden: Sequence[str],
        *,
        with_loops: bool = False,
    ) -> None:
        """`hidden`: the schemes that no packet shows."""
        self._connection = connection
        self._kind, self._values = filter_values(run, wanted, hidden)
        self._values |= {"run_id": run.id, "after": after.run_revision, **moment_of(run, to).values}
        own = (after.run_revision, to.run_revision)
        parts: list[_Part] = [
            (self._own, *own),
            (partial(self._moved, run.project_scope), after.project_revision, to.project_revision),
            (partial(self._moved, run.global_scope), after.global_revision, to.global_revision),
        ]
        if with_loops:
            parts += [(self._changed_loops, *own), (self._changed_turns, *own)]
        self._parts = [part for part in parts if part[1] < part[2]]

    def page(self, position: FeedPosition, rows_max: int) -> FeedPage:
        """The changes from a position on, of each part in the order of revisions."""
        page, place = FeedPage(), position.place
        for following, (read, begin, end) in enumerate(self._parts[position.part :], position.part + 1):
            place = read(page, place or (begin, END_OF_REVISION), end, rows_max)
            is_full = len(page.shown) + len(page.removed) >= rows_max and following < len(self._parts)
            if place or is_full:
                page.next = FeedPosition(following - 1, place) if place else FeedPosition(following)
                break
        return page

    def _own(self, page: FeedPage, place: _Place, _end: int, rows_max: int) -> _Place | None:
        """Views of the run that began or ended."""
        return self._changed(_OWN[self._kind], page, place, rows_max, {})

    def _moved(self, scope: int, page: FeedPage, place: _Place, end: int, rows_max: int) -> _Place | None:
        """Entries of a shared scope with a newer version, even if the run's view is older."""
        return self._changed(_MOVED[self._kind], page, place, rows_max, {"scope": scope, "at_shared": end})

    def _changed(
        self, statement: CompoundSelect[Any], page: FeedPage, place: _Place, rows_max: int, values: dict[str, int]
    ) -> _Place | None:
        given = {**self._values, **values, "place_rev": place[0], "place_id": place[1], "page": rows_max}
        rows = self._connection.execute(statement, given).all()
        for _revision, _row, path, *rest in rows:
            shown = EntryRow(path, *rest)
            if shown.content:
                page.shown.append(shown)
            else:
                page.removed.append(path)
        return (rows[-1][0], rows[-1][1]) if len(rows) == rows_max else None

    def _changed_loops(self, page: FeedPage, place: _Place, end: int, _rows_max: int) -> _Place | None:
        loops = changed_loops(self._connection, self._values["run_id"], place, end, LOOPS_PER_PAGE)
        page.loops += loops
        return (loops[-1].revision, loops[-1].sequence) if len(loops) == LOOPS_PER_PAGE else None

    def _changed_turns(self, page: FeedPage, place: _Place, end: int, _rows_max: int) -> _Place | None:
        turns = changed_turns(self._connection, self._values["run_id"], place, end, TURNS_PER_PAGE)
        page.turns += turns
        return (turns[-1].revision, turns[-1].number) if len(turns) == TURNS_PER_PAGE else None
