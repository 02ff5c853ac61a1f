"""The change feed of a run: a stream of messages, each with the cursor to resume from.

Theory of operation. A watcher has no queue of messages. When a commit wakes it, it sends the changes between its cursor
and now: from the deltas of the commits if they cover all of that (see app.commit_delta), else in a round of reads. A
round covers the changes up to its beginning, however long the caller takes; later changes belong to the next round, so
a cursor is exact. Within a round, rows are read in pages and bodies in batches, each after the caller has taken the one
before (backpressure): a slow watcher costs the store one page and one batch. The cursor advances only with the last
message of a round, so an interrupted round begins again. Source: architecture 3 (revisions and the change feed), 12.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final, cast

from msgspec import Struct, field
from msgspec.structs import replace

from turnwright_core.batching import split_by_weight
from turnwright_core.coalesced_timers import heartbeat_due_s
from turnwright_core.entries import Cursor
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.owner_calls import RunChanges
from turnwright_core.runs import Loop, Turn
from turnwright_store.app.commit_delta import CommitDelta, merge
from turnwright_store.app.history import check_cursor, moment_of_cursor
from turnwright_store.app.read_view import ScopeChanges, changed_scopes, message_batches
from turnwright_store.domain.message_sizes import loop_bytes, turn_bytes
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Connection, Database, Subscription
from turnwright_store.sql.feed import END_OF_REVISION, Feed, FeedPosition
from turnwright_store.sql.loops import changed_loops
from turnwright_store.sql.runs import RunRow, get_run, get_run_head, run_not_found
from turnwright_store.sql.turns import changed_turns
from turnwright_store.sql.views import EntryRow, Wanted, load_entries

ROWS_PER_PAGE: Final = 500
"""View rows to read at a time; each has a few hundred bytes."""

LOOPS_PER_PAGE: Final = 4
"""Loops to read at a time; a prompt may have 1 MiB."""

TURNS_PER_PAGE: Final = 200
"""Turns to read at a time; each has about a kilobyte."""


class _Ledger(Enum):
    """Rows of a run other than its views."""

    LOOPS = "loops"
    TURNS = "turns"


class _ChangeWindow(Struct, frozen=True):
    """The changes of one wake-up: from a cursor to a moment."""

    run: RunRow
    """The run as of that moment."""
    after: Cursor
    to: Cursor
    parts: tuple[ScopeChanges | _Ledger, ...]
    """The parts that have changed; for the others nothing is read."""

    @property
    def is_run_changed(self) -> bool:
        """Every write of a loop or a turn also writes the run's row."""
        return self.run.run.revision > self.after.run_revision


class _FeedPosition(Struct, frozen=True):
    """Progress of a round: a part, and a position in it, None for its beginning."""

    part: int = 0
    position: FeedPosition | None = None


class _FeedPage(Struct):
    """A part of a round. Bodies are not loaded yet."""

    shown: list[EntryRow] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    next: _FeedPosition | None = None


_Drafts = list[tuple[RunChanges, list[EntryRow]]]
"""Messages, each with its entries that are not loaded yet."""


class Watches:
    """The watchers of one store, and their shutdown."""

    def __init__(self) -> None:
        self._is_draining = False
        self._waiting: set[asyncio.Event] = set()

    def drain(self) -> None:
        """End all of them."""
        self._is_draining = True
        for woken in self._waiting:
            woken.set()

    async def changes(
        self,
        database: Database,
        rules_now: Callable[[], StoreRules],
        address: RunRef,
        after: Cursor | None,
        wanted: Wanted,
    ) -> AsyncGenerator[RunChanges, None]:
        """Stream changes after a cursor, until the caller ends it. Raises CURSOR_FOREIGN, DRAINING, RUN_NOT_FOUND.

        The first message is sent at once, so that a watcher without a cursor gets one.
        """
        run = await database.read(partial(get_run_head, project=address.project, alias=address.run), inline=True)
        subscription = database.subscribe((run.scope, run.project_scope, run.global_scope), follows=run.scope)
        try:
            after = after or run.cursor(rules_now().incarnation)
            clock_s = asyncio.get_running_loop().time
            due_s = clock_s()
            is_woken = True
            while True:
                subscription.woken.clear()
                rules = rules_now()
                message = _from_deltas(subscription, after, wanted, rules) if clock_s() < due_s else None
                if message is not None:
                    yield message
                    after, due_s = message.cursor, heartbeat_due_s(clock_s(), rules.heartbeat_s)
                elif not is_woken:
                    # Nothing was committed since the last check: a heartbeat needs no read.
                    yield RunChanges(after)
                    due_s = heartbeat_due_s(clock_s(), rules.heartbeat_s)
                else:
                    begin = partial(_begin, rules=rules, address=address, run_id=run.id, after=after, wanted=wanted)
                    window, pages = await database.read(begin, inline=True)
                    if window.to != after or clock_s() >= due_s:
                        async for change in _messages(database, rules, window, pages, wanted):
                            yield change
                        due_s = heartbeat_due_s(clock_s(), rules.heartbeat_s)
                    after = window.to
                await self.wait(subscription.woken, max(0.0, due_s - clock_s()))
                is_woken = subscription.woken.is_set()
        finally:
            subscription.close()

    async def wait(self, woken: asyncio.Event, timeout_s: float) -> None:
        """Wait until there may be something new, or until the timeout. Raises DRAINING."""
        self._waiting.add(woken)
        try:
            if not self._is_draining:
                async with asyncio.timeout(timeout_s):
                    await woken.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(woken)
        if self._is_draining:
            raise fault(Reason.DRAINING, "The store is shutting down: call the watch again with your last cursor.")


def _from_deltas(subscription: Subscription, after: Cursor, wanted: Wanted, rules: StoreRules) -> RunChanges | None:
    """A message from the deltas of the last commits; None if the database must be read."""
    deltas = subscription.take_deltas()
    return merge(cast("Sequence[CommitDelta]", deltas), after, wanted, rules.hidden_schemes) if deltas else None


async def _messages(
    database: Database,
    rules: StoreRules,
    window: _ChangeWindow,
    pages: tuple[_Drafts, _FeedPosition | None],
    wanted: Wanted,
) -> AsyncIterator[RunChanges]:
    """The messages of a round. The next one is read after the caller has taken the previous one."""
    while True:
        drafts, following = pages
        for index, (change, shown) in enumerate(drafts, 1):
            if shown:
                query = partial(load_entries, run=window.run, shown=shown, wanted=wanted)
                change = replace(change, entries=await database.read(query, inline=True))  # noqa: PLW2901
            if following is None and index == len(drafts):
                change = replace(  # noqa: PLW2901
                    change,
                    cursor=window.to,
                    run=window.run.run if window.is_run_changed else None,
                    abort_requested=window.is_run_changed and window.run.abort_requested,
                )
            yield change
        if following is None:
            return
        pages = await database.read(partial(_read, rules=rules, window=window, position=following, wanted=wanted))


def _begin(
    connection: Connection, rules: StoreRules, address: RunRef, run_id: int, after: Cursor, wanted: Wanted
) -> tuple[_ChangeWindow, tuple[_Drafts, _FeedPosition | None]]:
    """Begin a round that ends now; returns it with its first messages."""
    run = get_run(connection, address.project, address.run)
    if run.id != run_id:
        # The alias belongs to another run now.
        raise run_not_found(address.project, address.run)
    now = run.cursor(rules.incarnation)
    check_cursor(after, now)
    parts: list[ScopeChanges | _Ledger] = list(changed_scopes(run, after, now))
    if run.run.revision > after.run_revision:
        parts += _Ledger
    window = _ChangeWindow(run, after, now, tuple(parts))
    return window, _read(connection, rules, window, _FeedPosition(), wanted)


def _read(
    connection: Connection, rules: StoreRules, window: _ChangeWindow, position: _FeedPosition, wanted: Wanted
) -> tuple[_Drafts, _FeedPosition | None]:
    """The messages of the next page, with the entries of the first one loaded, and where the one after begins."""
    page = _read_page(connection, rules, window, position, wanted)
    drafts = _to_drafts(page, window.after, wanted)
    first, shown = drafts[0]
    if shown:
        drafts[0] = (replace(first, entries=load_entries(connection, window.run, shown, wanted)), [])
    return drafts, page.next


def _read_page(
    connection: Connection, rules: StoreRules, window: _ChangeWindow, position: _FeedPosition, wanted: Wanted
) -> _FeedPage:
    to = moment_of_cursor(window.run, window.to)
    feed = Feed(connection, window.run, to, window.after.run_revision, wanted, rules.hidden_schemes)
    page = _FeedPage()
    at = position.position
    for number in range(position.part, len(window.parts)):
        part = window.parts[number]
        if isinstance(part, ScopeChanges):
            changed = feed.section(part.scope, part.to, at or part.begin, ROWS_PER_PAGE)
            page.shown += changed.shown
            page.removed += changed.removed
            at = changed.next
        else:
            at = _add_ledger(connection, window, part, at or (window.after.run_revision, END_OF_REVISION), page)
        if at or (len(page.shown) + len(page.removed) >= ROWS_PER_PAGE and number + 1 < len(window.parts)):
            page.next = _FeedPosition(number, at) if at else _FeedPosition(number + 1)
            break
    return page


def _add_ledger(
    connection: Connection, window: _ChangeWindow, part: _Ledger, at: FeedPosition, page: _FeedPage
) -> FeedPosition | None:
    """Rows that were written again after the moment belong to the next round."""
    if part is _Ledger.LOOPS:
        loops = changed_loops(connection, window.run.id, at, window.to.run_revision, LOOPS_PER_PAGE)
        page.loops += loops
        return (loops[-1].revision, loops[-1].sequence) if len(loops) == LOOPS_PER_PAGE else None
    turns = changed_turns(connection, window.run.id, at, window.to.run_revision, TURNS_PER_PAGE)
    page.turns += turns
    return (turns[-1].revision, turns[-1].number) if len(turns) == TURNS_PER_PAGE else None


def _to_drafts(page: _FeedPage, cursor: Cursor, wanted: Wanted) -> _Drafts:
    """The messages of a page: more than one if it is large."""
    drafts: _Drafts = []
    loops, turns = page.loops, page.turns
    if sum(map(loop_bytes, loops)) + sum(map(turn_bytes, turns)) > CHUNK_BYTES:
        drafts += [(RunChanges(cursor, loops=part), []) for part in split_by_weight(loops, loop_bytes)]
        drafts += [(RunChanges(cursor, turns=part), []) for part in split_by_weight(turns, turn_bytes)]
        loops, turns = [], []
    cuts = list(message_batches(page.shown, wanted)) or [[]]
    for index, shown in enumerate(cuts):
        is_last = index == len(cuts) - 1
        change = RunChanges(
            cursor,
            removed_paths=[] if index else page.removed,
            loops=loops if is_last else [],
            turns=turns if is_last else [],
        )
        drafts.append((change, shown))
    return drafts
