"""Following a run: what changed, in messages, each with the moment up to which the caller has seen everything.

A watcher holds no queue: it reads what changed since its cursor when a commit wakes it, so a slow one simply finds
more at once, and an entry written twice appears once. Source: architecture 3 (revisions and the change feed), 12.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Connection

from turnwright_core.entries import Cursor, Entry
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.runs import Loop, Run, Turn
from turnwright_store.app.reading import Address, Found, batches, find
from turnwright_store.domain.basis import Basis
from turnwright_store.domain.pages import in_parts
from turnwright_store.domain.weights import loop_bytes, turn_bytes
from turnwright_store.ports import Database
from turnwright_store.sql.loops import changed_loops
from turnwright_store.sql.runs import RunRow, get_run
from turnwright_store.sql.turns import changed_turns
from turnwright_store.sql.views import Shown, Wanted, load_entries


@dataclass(frozen=True, slots=True)
class Change:
    """One message of a watch; a heartbeat has the cursor only."""

    cursor: Cursor
    entries: list[Entry] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    run: Run | None = None
    loops: list[Loop] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing but the cursor."""
        return not (self.entries or self.removed or self.run or self.loops or self.turns)


@dataclass(frozen=True, slots=True)
class _Read:
    """What one read found: messages that are ready, and entries whose bodies are still to be loaded."""

    found: Found
    ready: list[Change]
    rest: list[list[Shown]]


class Watches:
    """The watchers of one store, and their common end."""

    def __init__(self) -> None:
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """End all of them."""
        self._draining.set()

    async def changes(
        self, database: Database, basis: Basis, address: Address, after: Cursor | None, wanted: Wanted
    ) -> AsyncGenerator[Change, None]:
        """What changes after a cursor, until the caller ends it. Raises CURSOR_FOREIGN, DRAINING.

        The first message comes at once, so that a watcher without a cursor knows where it stands.
        """
        run = await database.read(partial(get_run, project=address.project, alias=address.run))
        subscription = database.subscribe((run.scope, run.project_scope, run.global_scope))
        try:
            after = after or run.cursor(basis.incarnation)
            clock_s = asyncio.get_running_loop().time
            due_s = clock_s()
            while True:
                subscription.woken.clear()
                read = await database.read(partial(_read, basis=basis, address=address, after=after, wanted=wanted))
                if clock_s() >= due_s or not read.ready[-1].is_empty:
                    for change in read.ready:
                        yield change
                    due_s = clock_s() + basis.heartbeat_s
                for place, batch in enumerate(read.rest, 1):
                    entries = await database.read(partial(_load, run=read.found.run, shown=batch, wanted=wanted))
                    yield Change(read.found.cursor if place == len(read.rest) else after, entries)
                after = read.found.cursor
                await self._wait(subscription.woken, max(0.0, due_s - clock_s()))
        finally:
            subscription.close()

    async def _wait(self, woken: asyncio.Event, timeout_s: float) -> None:
        """Until there may be something new, or the time is over. Raises DRAINING."""
        waiting = [asyncio.ensure_future(woken.wait()), asyncio.ensure_future(self._draining.wait())]
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
        if self._draining.is_set():
            raise fault(Reason.DRAINING, "The store is shutting down: watch again with your last cursor.")


def _read(connection: Connection, basis: Basis, address: Address, after: Cursor, wanted: Wanted) -> _Read:
    """Until the last message of a read the cursor stays: whoever breaks off in between begins again."""
    found = find(connection, basis, address, after, wanted)
    run = found.run
    # Whoever writes a loop or a turn writes the run's row too.
    is_run_changed = run.run.revision > after.run
    loops = changed_loops(connection, run.id, after.run) if is_run_changed else []
    turns = changed_turns(connection, run.id, after.run) if is_run_changed else []
    ready: list[Change] = []
    if sum(map(loop_bytes, loops)) + sum(map(turn_bytes, turns)) > CHUNK_BYTES:
        ready += [Change(after, loops=part) for part in in_parts(loops, loop_bytes)]
        ready += [Change(after, turns=part) for part in in_parts(turns, turn_bytes)]
        loops, turns = [], []
    first, *rest = list(batches(found.shown, wanted)) or [[]]
    entries = load_entries(connection, run, first, wanted)
    cursor = after if rest else found.cursor
    ready.append(Change(cursor, entries, found.removed, run.run if is_run_changed else None, loops, turns))
    return _Read(found, ready, rest)


def _load(connection: Connection, run: RunRow, shown: list[Shown], wanted: Wanted) -> list[Entry]:
    return load_entries(connection, run, shown, wanted)
