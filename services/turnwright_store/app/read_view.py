"""Reading a run's whole view: current, past, or what changed after a cursor.

Source: architecture 3, 12.4; rows RU046, RU063, RU273.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from sqlalchemy import Connection
from turnwright_values.types import Cursor, Entry

from turnwright_core.batching import split_by_weight
from turnwright_core.checks import check_count, invalid
from turnwright_store.app.history import At, check_cursor, run_at
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Database
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.feed import Feed, FeedPosition
from turnwright_store.sql.runs import RunHead, get_run_head
from turnwright_store.sql.views import EntryRow, Wanted, snapshot

INCLUDE_MAX: Final = 100
"""Maximum number of paths to add to a filter."""

ENTRY_BYTES: Final = 512
"""Estimated overhead of an entry in a message, besides path, attributes and body."""

ROWS_A_STATEMENT: Final = 1000
"""Rows of changes that one statement reads."""


class ViewDelta(Struct, frozen=True):
    """What a reader must be sent, at one moment. Bodies are not loaded yet."""

    run: RunHead
    cursor: Cursor
    shown: list[EntryRow]
    removed: list[str]


class ViewMessage(Struct, frozen=True):
    """One message of a view; the last one has the cursor."""

    entries: list[Entry]
    removed: list[str]
    cursor: Cursor | None


def check_wanted(wanted: Wanted, after: Cursor | None, at: At | None) -> None:
    """Refuse a request that is over its limits, or that names two moments."""
    check_count("include_paths", len(wanted.include), INCLUDE_MAX)
    check_count("whole_schemes", len(wanted.whole), INCLUDE_MAX)
    if after is not None and at is not None:
        raise invalid("at", "Set `at` or `after`, not both.")


def find_view_delta(
    connection: Connection,
    rules: StoreRules,
    address: RunRef,
    after: Cursor | None,
    wanted: Wanted,
    at: At | None = None,
) -> ViewDelta:
    """What to send to a reader that has everything up to `after`, or that reads a moment whole.

    Without either: the current view. Raises CURSOR_FOREIGN, TURN_NOT_FOUND.
    """
    run = get_run_head(connection, address.project, address.run)
    then = run_at(connection, run, rules.incarnation, at)
    if after is None:
        return ViewDelta(
            then.run, then.cursor, snapshot(connection, then.run, wanted, rules.hidden_schemes, then.moment), []
        )
    check_cursor(after, then.cursor)
    feed = Feed(connection, run, after, then.cursor, wanted, rules.hidden_schemes)
    found = ViewDelta(run, then.cursor, [], [])
    position: FeedPosition | None = FeedPosition()
    while position:
        page = feed.page(position, ROWS_A_STATEMENT)
        found.shown.extend(page.shown)
        found.removed.extend(page.removed)
        position = page.next
    found.shown.sort(key=lambda one: one.position)
    return found


def message_batches(shown: Sequence[EntryRow], wanted: Wanted) -> Iterator[list[EntryRow]]:
    """The entries in lists for messages of about 256 KiB each."""
    return split_by_weight(shown, lambda one: weight_of(one, wanted))


def weight_of(one: EntryRow, wanted: Wanted) -> int:
    """Estimated size of an entry in a message, in bytes."""
    body = one.body_size_bytes if wanted.bodies else 0
    if bytes_max := wanted.bytes_max(one.scheme):
        body = min(body, bytes_max)
    return ENTRY_BYTES + 3 * len(one.path) + one.attributes_bytes + body


async def read_view(
    database: Database,
    rules: StoreRules,
    address: RunRef,
    after: Cursor | None,
    wanted: Wanted,
    at: At | None = None,
) -> AsyncIterator[ViewMessage]:
    """A run's view in parts, all of one moment, sorted by position."""
    check_wanted(wanted, after, at)

    def begin(connection: Connection) -> tuple[ViewDelta, list[list[EntryRow]], list[Entry]]:
        found = find_view_delta(connection, rules, address, after, wanted, at)
        cuts = list(message_batches(found.shown, wanted)) or [[]]
        return found, cuts, load_entries(connection, found.run, cuts[0], wanted)

    found, cuts, entries = await database.read(begin)
    removed = found.removed
    for index, batch in enumerate(cuts):
        if index:
            entries = await database.read(partial(load_entries, run=found.run, shown=batch, wanted=wanted))
        yield ViewMessage(entries, removed, found.cursor if index == len(cuts) - 1 else None)
        removed = []
