"""The change feed of a run: a stream of messages, each with the cursor to resume from.

Theory of operation. When a commit wakes a watcher, it sends the changes between its cursor and now: from the deltas of
the commits if they cover all of that (see app.commit_delta), else in a round of reads. A round covers the changes up to
its beginning, however long the caller takes; later changes belong to the next round, so a cursor is exact. Within a
round, rows are read in pages and bodies in batches, each after the caller has taken the one before (backpressure): a
slow watcher costs the store one page and one batch. The cursor advances only with the last message of a round, so an
interrupted round begins again. Source: architecture 3 (revisions and the change feed), 12.4.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.store import WatchChangesResponse
from turnwright_values.types import Cursor

from turnwright_core.batching import split_by_weight
from turnwright_core.errors import run_not_found
from turnwright_core.limits import CHUNK_BYTES
from turnwright_store.app.commit_delta import CommitDelta, merge
from turnwright_store.app.history import check_cursor
from turnwright_store.app.plans import plan_weight, plans_of
from turnwright_store.app.read_view import message_batches
from turnwright_store.domain.message_sizes import loop_bytes, turn_bytes
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Database, Subscription
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.feed import Feed, FeedPage, FeedPosition
from turnwright_store.sql.runs import RunRow, get_run, get_run_head
from turnwright_store.sql.views import EntryRow, Wanted

ROWS_PER_PAGE: Final = 500
"""View rows to read at a time; each has a few hundred bytes."""


class _ChangeWindow(Struct, frozen=True):
    """The changes of one round: from a cursor to a moment."""

    run: RunRow
    """The run as of that moment."""
    after: Cursor
    to: Cursor

    @property
    def is_run_changed(self) -> bool:
        """Every write of a loop or a turn also writes the run's row."""
        return self.run.run.revision > self.after.run_revision


_Drafts = list[tuple[WatchChangesResponse, list[EntryRow]]]
"""Messages, each with its entries that are not loaded yet."""


class ChangesWatch(Struct):
    """The changes of a run since a cursor."""

    database: Database
    subscription: Subscription
    rules_now: Callable[[], StoreRules]
    address: RunRef
    run_id: int
    wanted: Wanted
    with_plans: bool
    cursor: Cursor
    """Up to which everything was sent."""
    pause_s: float = 0.0

    def heartbeat(self) -> WatchChangesResponse:
        return WatchChangesResponse(cursor=self.cursor)

    async def read(self, *, is_woken: bool, is_due: bool) -> AsyncIterator[WatchChangesResponse]:  # noqa: ARG002 - as others
        """The changes since the cursor. Raises CURSOR_FOREIGN, RUN_NOT_FOUND."""
        rules = self.rules_now()
        deltas = cast("Sequence[CommitDelta]", self.subscription.take_deltas())
        # Commits that change plans have no delta.
        message = merge(deltas, self.cursor, self.wanted, rules.hidden_schemes) if deltas else None
        if message is not None:
            yield message
            self.cursor = message.cursor
        elif is_woken:
            window, drafts, position = await self.database.read(partial(self._begin, rules=rules))
            if window.to != self.cursor:
                async for change in self._messages(rules, window, drafts, position):
                    yield change
                self.cursor = window.to

    def _begin(self, connection: Connection, rules: StoreRules) -> tuple[_ChangeWindow, _Drafts, FeedPosition | None]:
        """Begin a round that ends now; returns it with its first messages."""
        run = get_run(connection, self.address.project, self.address.run)
        if run.id != self.run_id:
            # The alias belongs to another run now.
            raise run_not_found(self.address.project, self.address.run)
        now = run.cursor(rules.incarnation)
        check_cursor(self.cursor, now)
        window = _ChangeWindow(run, self.cursor, now)
        return window, *self._page(connection, rules, window, FeedPosition())

    def _page(
        self, connection: Connection, rules: StoreRules, window: _ChangeWindow, position: FeedPosition
    ) -> tuple[_Drafts, FeedPosition | None]:
        """The messages of a page, with the entries of the first one loaded, and where the next page begins."""
        hidden, loops = rules.hidden_schemes, window.is_run_changed
        feed = Feed(connection, window.run, window.after, window.to, self.wanted, hidden, with_loops=loops)
        page = feed.page(position, ROWS_PER_PAGE)
        drafts = _to_drafts(page, window.after, self.wanted)
        first, shown = drafts[0]
        if shown:
            drafts[0] = (replace(first, entries=load_entries(connection, window.run, shown, self.wanted)), [])
        if self.with_plans:
            plans = plans_of(connection, window.run, [*(row.path for row in page.shown), *page.removed])
            parts = split_by_weight(plans, plan_weight)
            drafts[:0] = [(WatchChangesResponse(cursor=window.after, plans=part), []) for part in parts]
        return drafts, page.next

    async def _messages(
        self, rules: StoreRules, window: _ChangeWindow, drafts: _Drafts, position: FeedPosition | None
    ) -> AsyncIterator[WatchChangesResponse]:
        """The messages of a round. The next one is read after the caller has taken the previous one."""
        while True:
            for index, (draft, shown) in enumerate(drafts, 1):
                change = draft
                if shown:
                    query = partial(load_entries, run=window.run, shown=shown, wanted=self.wanted)
                    change = replace(change, entries=await self.database.read(query))
                if position is None and index == len(drafts):
                    change = replace(
                        change,
                        cursor=window.to,
                        run=window.run.run if window.is_run_changed else None,
                        abort_requested=window.is_run_changed and window.run.abort_requested,
                    )
                yield change
            if position is None:
                return
            page = partial(self._page, rules=rules, window=window, position=position)
            drafts, position = await self.database.read(page)


def _to_drafts(page: FeedPage, cursor: Cursor, wanted: Wanted) -> _Drafts:
    """The messages of a page: more than one if it is large."""
    drafts: _Drafts = []
    loops, turns = page.loops, page.turns
    if sum(map(loop_bytes, loops)) + sum(map(turn_bytes, turns)) > CHUNK_BYTES:
        drafts += [(WatchChangesResponse(cursor=cursor, loops=part), []) for part in split_by_weight(loops, loop_bytes)]
        drafts += [(WatchChangesResponse(cursor=cursor, turns=part), []) for part in split_by_weight(turns, turn_bytes)]
        loops, turns = [], []
    cuts = list(message_batches(page.shown, wanted)) or [[]]
    for index, shown in enumerate(cuts):
        is_last = index == len(cuts) - 1
        change = WatchChangesResponse(
            cursor=cursor,
            entries=[],
            removed_paths=[] if index else page.removed,
            loops=loops if is_last else [],
            turns=turns if is_last else [],
        )
        drafts.append((change, shown))
    return drafts


async def watch_changes(
    database: Database,
    rules_now: Callable[[], StoreRules],
    address: RunRef,
    after: Cursor | None,
    wanted: Wanted,
    *,
    with_plans: bool = False,
) -> ChangesWatch:
    """Begin a watch of the changes after a cursor; None: from now on. Raises RUN_NOT_FOUND."""
    run = await database.read(partial(get_run_head, project=address.project, alias=address.run))
    subscription = database.subscribe((run.scope, run.project_scope, run.global_scope), follows=run.scope)
    cursor = after or run.cursor(rules_now().incarnation)
    return ChangesWatch(database, subscription, rules_now, address, run.id, wanted, with_plans, cursor)
