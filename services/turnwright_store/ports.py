"""What the use cases need from a database.

A use case is a synchronous function of a transaction, in the writer's thread, or of a connection, in the event loop: it
must not wait for anything but SQL. Source: docs/adr/0003, docs/adr/0061.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct, field
from sqlalchemy import Connection
from turnwright_values.store import Durability

from turnwright_core.limits import CHUNK_BYTES
from turnwright_store.domain.path_state import PathState

T = TypeVar("T")

POSTGRESQL: Final = "postgresql"
SQLITE: Final = "sqlite"

UNANSWERED: Final = "unanswered"
"""Execution option of a statement whose answer nobody reads: a server is not waited for until somebody reads one."""


DELTA_BYTES_MAX: Final = CHUNK_BYTES
"""Most bytes of deltas that a follower keeps until it takes them: what one message holds."""

DELTAS_MAX: Final = 32
"""Most deltas that a follower keeps."""


class ScopeDelta(Protocol):
    """What a commit changed in a scope, for its followers."""

    @property
    def weight_bytes(self) -> int:
        """Estimated bytes."""


class Transaction(Struct):
    """One request's unit of work: the connection, the time of the write, and the scopes that it has bumped."""

    connection: Connection
    clock_ms: Callable[[], int]
    """Gives `now_ms`; asked once."""
    entry_ids: Callable[[int], Sequence[int]]
    """Allocates this many entry ids."""
    try_lock: Callable[[str], bool]
    """Lock one more name (see domain.locks) until the commit without waiting; returns whether it is locked.

    Read again what was read before the lock.
    """
    is_followed: Callable[[int], bool]
    """Whether a scope has followers, for which to publish a delta."""
    bumped: dict[int, int] = field(default_factory=dict)
    """The new revisions of the scopes that this moment of the request has bumped."""
    deferred_bumps: dict[int, tuple[Any, Any]] | None = None
    """By scope: bumps that are not written yet, from and to (sql.scopes)."""
    revisions_before: dict[int, int] = field(default_factory=dict)
    """The revisions before the request of the scopes that it has bumped: their watchers are woken after the commit."""
    positions: dict[int, int] = field(default_factory=dict)
    """By scope, the last position that this request has assigned."""
    written: list[tuple[int, Sequence[PathState]]] = field(default_factory=list)
    """The paths that were written, with the revisions of their run."""
    deltas: dict[int, ScopeDelta] = field(default_factory=dict)
    """Commit deltas for followers, by scope (app.commit_delta)."""
    detail: dict[str, object] = field(default_factory=dict)
    """What the audit is told of the request, beside what every row has (app.audit)."""
    is_change: bool = True
    """Whether this request changes something; one that does not leaves no row of the audit."""
    _now_ms: int | None = None

    @property
    def now_ms(self) -> int:
        """The time of the write by the database's clock, which is that of all replicas."""
        if self._now_ms is None:
            self._now_ms = self.clock_ms()
        return self._now_ms

    def next_moment(self) -> None:
        """Begin a new moment: later writes get later revisions and a later time.

        Shared entries are read by time, so the time must differ too.
        """
        self.bumped = {}
        self._now_ms = self.now_ms + 1


ANY_SCOPE: Final = 0
"""The wildcard for subscriptions; no scope has this number.

A commit that bumps it has deleted scopes, whose numbers may be reused.
"""

Work = Callable[[Transaction], T]
Query = Callable[[Connection], T]


class Subscription(Protocol):
    """A subscription of one task to changes of some scopes."""

    @property
    def woken(self) -> asyncio.Event:
        """Set by each commit that raised one of the scopes; the subscriber clears it before it reads."""

    def take_deltas(self) -> Sequence[ScopeDelta] | None:
        """The deltas of the followed scope since the last call; None: a commit has published none.

        Empty where nothing was committed.
        """

    def take(self) -> frozenset[int] | None:
        """For a subscriber to ANY_SCOPE: the scopes bumped since the last call; None: some may be missing."""

    def close(self) -> None: ...


class Database(Protocol):
    """Transactions on the one history of a store."""

    async def write(self, work: Work[T], durability: Durability, locks: Collection[str]) -> T:
        """Run a function in a transaction and return its result after the commit.

        `locks` names everything that the function changes or depends on (see domain.locks): of two writes with a common
        name, on any replica, the later one sees the effects of the earlier one. The function may run more than once, so
        it must not have other effects. An exception rolls back its own changes only. Raises QUEUE_FULL, DRAINING,
        DATABASE_UNAVAILABLE.
        """

    async def read(self, query: Query[T]) -> T:
        """Run a function on one consistent snapshot. Raises QUEUE_FULL, DRAINING, DATABASE_UNAVAILABLE."""

    def subscribe(self, scopes: Collection[int], follows: int = ANY_SCOPE) -> Subscription:
        """Subscribe to commits that bump one of these scopes; `follows` is one whose deltas are wanted."""


class OwnedDatabase(Database, Protocol):
    """A database and its life cycle."""

    async def start(self) -> None:
        """Connect, migrate the schema, begin to serve. Raises OSError and its subclasses."""

    async def close(self) -> None:
        """Write what is queued, then disconnect."""

    async def quick_check(self) -> None:
        """A fast check of the files. Raises DATABASE_UNAVAILABLE."""

    async def integrity_check(self) -> None:
        """Check all pages of the files; may take long. Raises DATABASE_UNAVAILABLE."""
