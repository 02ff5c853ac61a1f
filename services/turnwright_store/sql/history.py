"""What became of a path: the intervals of its views, each with what it showed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import Connection, Select, and_, bindparam, desc, select, union_all

from turnwright_store.sql.clauses import number
from turnwright_store.sql.entries import IN_RUN, IS_CURRENT, VISIBLE_VERSIONS
from turnwright_store.sql.keys import is_of
from turnwright_store.sql.tables import versions, views
from turnwright_store.sql.views import (
    ENTRY_ROW_COLUMNS,
    FROM_REV,
    HAS_ENDED,
    EntryRow,
)

_IN_PATH: Final = and_(IN_RUN, views.c.path == bindparam("path"))
_INTERVAL: Final[Select[Any]] = (
    select(views.c.to_rev.label("to_rev"), views.c.version_rev.label("pinned"), *ENTRY_ROW_COLUMNS)
    .select_from(VISIBLE_VERSIONS)
    .where(_IN_PATH, number("before") > FROM_REV)
)
_BEGINNING: Final = select(views.c.from_rev.label("revision"), views.c.create_ms).where(
    _IN_PATH, number("before") <= FROM_REV
)
_HISTORY: Final = (
    union_all(_INTERVAL.where(IS_CURRENT), _INTERVAL.where(HAS_ENDED)).order_by(desc("revision")).limit(number("page"))
)
_BEGUN_LATER: Final = (
    union_all(_BEGINNING.where(IS_CURRENT), _BEGINNING.where(HAS_ENDED)).order_by("revision").limit(number("page"))
)
_WRITTEN: Final = (
    select(
        versions.c.id,
        versions.c.from_rev,
        versions.c.body_size_bytes,
        versions.c.writer,
        versions.c.create_ms,
        versions.c.attributes_bytes,
    )
    .where(is_of(number("entry")), versions.c.create_ms <= number("until_ms"))
    .order_by(versions.c.id.desc())
    .limit(number("page"))
)


class _Written(Struct, frozen=True):
    """The part of Shown that comes from a version."""

    content: int
    version: int
    version_bytes: int
    writer: int
    version_ms: int
    attributes_bytes: int


_SAME_MS_MAX: Final = 20
"""Writes of one path within a millisecond that can be distinguished."""


class Interval(Struct, frozen=True):
    """A view of a run over the revisions from `shown.revision` on."""

    shown: EntryRow
    to_rev: int | None
    """The revision at which it ended."""
    is_pinned: bool
    """Whether it shows a fixed version; one of a shared scope follows the head."""


def list_history(connection: Connection, run_id: int, path: str, before: int, page: int) -> list[Interval]:
    """The intervals of a path in a run, latest first, that began before a revision.

    One of a shared scope has the content that it showed before the path was written next, or has now.
    """
    if "\0" in path:
        return []
    values = {"run_id": run_id, "path": path, "before": before}
    rows = connection.execute(_HISTORY, {**values, "page": page}).all()
    intervals = [Interval(EntryRow(*shown), to_rev, pinned is not None) for to_rev, pinned, *shown in rows]
    if all(one.is_pinned or one.to_rev is None for one in intervals):
        return intervals
    later = connection.execute(_BEGUN_LATER, {**values, "page": _SAME_MS_MAX}).all()
    begun = [(revision, ms) for revision, ms in reversed(later)]
    begun += [(one.shown.revision, one.shown.view_ms) for one in intervals]
    return [_as_it_ended(connection, one, begun) for one in intervals]


def _as_it_ended(connection: Connection, one: Interval, begun: Sequence[tuple[int, int]]) -> Interval:
    """An interval with its content at the end.

    Revisions of a run and of a shared scope are related by time alone: an interval ended when the next one began, and
    what that one wrote is not its content.
    """
    if one.is_pinned or one.to_rev is None:
        return one
    ends = [ms for revision, ms in begun if revision >= one.to_rev]
    if not ends:
        return one
    end_ms = ends[-1]
    values = {"entry": one.shown.entry, "until_ms": end_ms, "page": _SAME_MS_MAX}
    written = [_Written(*row) for row in connection.execute(_WRITTEN, values)]
    skipped = min(ends.count(end_ms), sum(each.version_ms == end_ms for each in written))
    if skipped >= len(written):
        return one
    return replace(one, shown=one.shown._replace(**asdict(written[skipped])))
