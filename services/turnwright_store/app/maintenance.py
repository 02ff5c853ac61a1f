"""Background chores: compaction, indexing, retention, garbage collection. Each chore has its own task.

A chore does its work in bounded steps and says after each whether there is more, so it never blocks the writer for
long and can be stopped between two steps. Replicas may run the same chore at once: every step is decided inside its
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeVar

from msgspec import Struct
from turnwright_values.store import Durability

from turnwright_core.batching import next_poll_in_s
from turnwright_core.errors import Reason, TurnwrightError, UnavailableError
from turnwright_kit.logs import get_logger
from turnwright_store.domain.locks import run_lock
from turnwright_store.ports import ANY_SCOPE, Database, Query, Transaction

R = TypeVar("R", bound=tuple[str, ...])

LOOKS: Final = 4
"""Number of checks of a row within its waiting time."""

EVERY_S_MAX: Final = 5.0
"""Longest interval between two such checks, in seconds."""

ROWS_MAX: Final = 50
"""Most rows that one round of a `row_chore` processes."""

_log = get_logger("store.maintenance")


class Chore(Struct, frozen=True):
    """Work that is repeated in bounded steps."""

    name: str
    every_s: float
    """Seconds between two runs if there was nothing to do."""
    step: Callable[[], Awaitable[bool]]
    """Does a bounded part of the work; returns True if there is more now."""
    follows: Database | None = None
    """All of its work comes from commits to this database: when idle, it waits for a commit."""


def poll_interval_s(time_ms: int) -> float:
    """Seconds between two checks for what may wait this many milliseconds."""
    return min(time_ms / 1000 / LOOKS, EVERY_S_MAX)


async def process_row(work: Awaitable[object], chore: str, **about: object) -> Exception | None:
    """Process one of many rows; returns the error if that failed, which does not block the others.

    Raises UnavailableError, QUEUE_FULL: it is the database that has no time, and the next run finds the row again.
    """
    try:
        await work
    except UnavailableError:
        raise
    except TurnwrightError as error:
        if error.reason is Reason.QUEUE_FULL:
            raise
        _log.warning("chore_row_refused", chore=chore, reason=error.reason.name, detail=error.message, **about)
        return error
    except Exception as error:  # noqa: BLE001 - one row that cannot be processed keeps no other waiting
        _log.error("chore_row_crashed", chore=chore, exc_info=error, **about)
        return error
    return None


def row_chore(
    name: str,
    every_s: float,
    database: Database,
    find: Query[Sequence[R]],
    work: Callable[[Transaction, R], None],
    locks: Callable[[str, str], Collection[str]] = lambda project, run: (run_lock(project, run),),
    more_from: int = ROWS_MAX,
    set_aside: Sequence[Callable[[Transaction, R, Exception], object]] = (),
) -> Chore:
    """The chore that processes what `find` returns, a bounded number of rows, each in a transaction of its own.

    A row begins with the names of a project and of one of its runs. If there were `more_from` rows, it looks again at
    once. A row that failed is put out of the way by the first of `set_aside` that works, in a transaction of its own;
    without one it is found again.
    """

    async def process(row: R) -> bool:
        project, run, *item = row

        async def error_of(one: Callable[..., object], *more: Exception) -> Exception | None:
            writing = database.write(lambda tx: one(tx, row, *more), Durability.FULL, locks(project, run))
            return await process_row(writing, name, project=project, run=run, item=item)

        if (error := await error_of(work)) is None:
            return True
        for aside in set_aside:
            if await error_of(aside, error) is None:
                return True
        return False

    async def step() -> bool:
        done = [await process(row) for row in await database.read(find)]
        return len(done) >= more_from and all(done)

    return Chore(name, every_s, step)


class Maintenance:
    """The running chores of one store."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, chores: Sequence[Chore]) -> None:
        self._tasks = [asyncio.create_task(_run_chore(chore), name=f"store-{chore.name}") for chore in chores]

    async def stop(self) -> None:
        """Stop all chores; a write in progress is still committed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []


async def _run_chore(chore: Chore) -> None:
    clock_s = asyncio.get_running_loop().time
    commits = chore.follows.subscribe((ANY_SCOPE,)) if chore.follows else None
    try:
        while True:
            if commits:
                commits.woken.clear()
                commits.take()
            more = await _run_step(chore)
            if commits and more is False:
                await commits.woken.wait()
            await asyncio.sleep(0 if more else next_poll_in_s(clock_s(), chore.every_s))
    finally:
        if commits:
            commits.close()


async def _run_step(chore: Chore) -> bool | None:
    """One step of a chore. An exception ends only this run: the work is still there for the next one (None)."""
    step = asyncio.ensure_future(chore.step())
    try:
        await asyncio.wait([step])
    except asyncio.CancelledError:
        step.cancel()
        await asyncio.wait([step])
        raise
    error = step.exception()
    if error is None:
        return step.result()
    if isinstance(error, TurnwrightError):
        _log.warning("chore_postponed", chore=chore.name, reason=error.reason.name, detail=error.message)
    else:
        _log.error("chore_failed", chore=chore.name, exc_info=error)
    return None
