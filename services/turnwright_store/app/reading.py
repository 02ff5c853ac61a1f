"""Reading a run's view: whole or since a cursor, by path, by pattern.

Source: architecture 3, 12.4; rows RU046, RU063, RU273.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlalchemy import Connection

from turnwright_core.entries import Cursor, Entry
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import PAGE_SIZE_MAX, PATTERN_CHARS_MAX
from turnwright_core.patterns import PatternError, Shape, match, search, shape_of
from turnwright_store.domain.basis import Basis
from turnwright_store.domain.checks import check_chars, check_count, invalid, over_limit, page_size
from turnwright_store.domain.pages import ANSWER_BYTES_MAX, in_parts, page_of, place_of
from turnwright_store.ports import Database
from turnwright_store.sql.runs import RunRow, get_run
from turnwright_store.sql.views import Shown, ViewReader, Wanted, find_shown, list_shown, load_entries

INCLUDE_MAX: Final = 100
"""Most paths that a reader can add to a filter."""

ENTRY_BYTES: Final = 512
"""What an entry weighs in a message beside path, attributes and body, generously."""

_SCANNED_A_STATEMENT: Final = 500
_WILD: Final = frozenset("*?[]{}!@+()\\")


@dataclass(frozen=True, slots=True)
class Address:
    """Which run."""

    project: str
    run: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a reader has to be told, at one moment. Bodies are still to be loaded."""

    run: RunRow
    cursor: Cursor
    shown: list[Shown]
    removed: list[str]


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a view; the last one has the cursor."""

    entries: list[Entry]
    removed: list[str]
    cursor: Cursor | None


def check_wanted(wanted: Wanted) -> None:
    """Refuse a wish that is over its limits."""
    check_count("include_paths", len(wanted.include), INCLUDE_MAX)


def check_cursor(after: Cursor, now: Cursor) -> None:
    """Refuse a cursor of another history, or one that this history has not reached. Raises CURSOR_FOREIGN."""
    reached = after.run <= now.run and after.project <= now.project and after.global_ <= now.global_
    if after.incarnation != now.incarnation or not reached:
        raise fault(Reason.CURSOR_FOREIGN, "This cursor is from another history of the store: take a snapshot.")


def find(connection: Connection, basis: Basis, address: Address, after: Cursor | None, wanted: Wanted) -> Found:
    """What a reader has to be told who has seen everything up to `after`; None: who has seen nothing."""
    run = get_run(connection, address.project, address.run)
    cursor = run.cursor(basis.incarnation)
    reader = ViewReader(connection, run, wanted, basis.hidden_schemes)
    if after is None:
        return Found(run, cursor, reader.snapshot(), [])
    check_cursor(after, cursor)
    shown: list[Shown] = []
    removed: list[str] = []
    if cursor.run > after.run:
        shown = reader.opened(after.run)
        here = {one.path for one in shown}
        removed = [path for path in reader.left(after.run) if path not in here]
    if cursor.project > after.project:
        shown += reader.moved(run.project_scope, after.project, after.run)
    if cursor.global_ > after.global_:
        shown += reader.moved(run.global_scope, after.global_, after.run)
    return Found(run, cursor, shown, removed)


def batches(shown: Sequence[Shown], wanted: Wanted) -> Iterator[list[Shown]]:
    """The entries in lists that make messages of about 256 KiB each."""
    return in_parts(shown, lambda one: weight_of(one, wanted))


def weight_of(one: Shown, wanted: Wanted) -> int:
    """About how many bytes an entry takes in a message."""
    body = one.body_bytes if wanted.bodies else 0
    if wanted.body_bytes_max:
        body = min(body, wanted.body_bytes_max)
    return ENTRY_BYTES + 3 * len(one.path) + one.attributes_bytes + body


async def read_view(
    database: Database, basis: Basis, address: Address, after: Cursor | None, wanted: Wanted
) -> AsyncIterator[Part]:
    """A run's view in parts, all of one moment, in the order of position."""
    check_wanted(wanted)

    def begin(connection: Connection) -> tuple[Found, list[list[Shown]], list[Entry]]:
        found = find(connection, basis, address, after, wanted)
        found.shown.sort(key=lambda one: one.position)
        cuts = list(batches(found.shown, wanted)) or [[]]
        return found, cuts, load_entries(connection, found.run, cuts[0], wanted)

    found, cuts, entries = await database.read(begin)
    removed = found.removed
    for place, batch in enumerate(cuts):
        if place:
            entries = await database.read(partial(_load, run=found.run, shown=batch, wanted=wanted))
        yield Part(entries, removed, found.cursor if place == len(cuts) - 1 else None)
        removed = []


def _load(connection: Connection, run: RunRow, shown: list[Shown], wanted: Wanted) -> list[Entry]:
    return load_entries(connection, run, shown, wanted)


def get_entries(connection: Connection, address: Address, paths: Sequence[str], *, bodies: bool) -> list[Entry]:
    """Entries by path, in the order of the request; those that the run does not see are left out."""
    check_count("paths", len(paths), PAGE_SIZE_MAX)
    wanted = Wanted(bodies=bodies)
    run = get_run(connection, address.project, address.run)
    found = find_shown(connection, run.id, list(dict.fromkeys(paths)))
    shown = [found[path] for path in paths if path in found]
    total = sum(weight_of(one, wanted) for one in shown)
    if total > ANSWER_BYTES_MAX:
        raise over_limit("paths", ANSWER_BYTES_MAX, total, "bytes")
    return load_entries(connection, run, shown, wanted)


@dataclass(frozen=True, slots=True)
class Query:
    """Entries by pattern; empty patterns fit everything."""

    pattern: str
    body_pattern: str
    bodies: bool
    size: int
    token: str


def list_entries(
    connection: Connection, address: Address, query: Query, check_time: Callable[[], None]
) -> tuple[list[Entry], str]:
    """A page of entries that fit, in path order. `check_time` raises when matching has taken too long."""
    check_chars("pattern", query.pattern, PATTERN_CHARS_MAX)
    check_chars("body_pattern", query.body_pattern, PATTERN_CHARS_MAX)
    size = page_size(query.size)
    (after,) = place_of(query.token, str) or ("",)
    run = get_run(connection, address.project, address.run)
    wanted = Wanted(bodies=query.bodies)
    try:
        fitting = _fitting(connection, run, query, str(after), check_time)
        page, more = page_of(fitting, size, lambda one: (one.path,), lambda one: weight_of(one, wanted))
    except PatternError as error:
        raise invalid("pattern", str(error)) from None
    return load_entries(connection, run, page, wanted), more


def time_limit(clock_s: Callable[[], float], limit_s: float) -> Callable[[], None]:
    """A function that raises when so many seconds have passed since now."""
    end = clock_s() + limit_s

    def check() -> None:
        if clock_s() > end:
            raise invalid("pattern", f"Matching took longer than {limit_s} s: use a narrower pattern.")

    return check


def _fitting(
    connection: Connection, run: RunRow, query: Query, after: str, check_time: Callable[[], None]
) -> Iterator[Shown]:
    for candidates in _candidates(connection, run, query.pattern, after):
        fitting = []
        for one in candidates:
            check_time()
            if not query.pattern or match(query.pattern, one.path):
                fitting.append(one)
        if not query.body_pattern:
            yield from fitting
            continue
        for batch in batches(fitting, Wanted()):
            for one, entry in zip(batch, load_entries(connection, run, batch, Wanted()), strict=True):
                check_time()
                if search(query.body_pattern, entry.body):
                    yield one


def _candidates(connection: Connection, run: RunRow, pattern: str, after: str) -> Iterator[list[Shown]]:
    """What may fit, in path order, some at a time: a path by itself, else what begins as the pattern does."""
    shape = shape_of(pattern) if pattern else Shape.GLOB
    if shape is Shape.LITERAL:
        yield [one for one in find_shown(connection, run.id, [pattern]).values() if one.path > after]
        return
    prefix = "" if shape is Shape.REGEX else _fixed_prefix(pattern)
    while found := list_shown(connection, run.id, prefix, after, _SCANNED_A_STATEMENT):
        yield found
        after = found[-1].path


def _fixed_prefix(pattern: str) -> str:
    for place, character in enumerate(pattern):
        if character in _WILD:
            return pattern[:place]
    return pattern
