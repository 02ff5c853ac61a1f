"""What the use cases need from a database.

A use case is a synchronous function of a transaction. It runs in the database's own thread, so it must not wait for
anything but SQL. Source: docs/adr/0003.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar, overload

from msgspec import Struct, field
from sqlalchemy import Dialect

from turnwright_core.entries import Entry
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.owner_calls import ReturnView
from turnwright_store.domain.path_state import PathState

T = TypeVar("T")


class Rows(Protocol):
    """The rows of one statement, as tuples: the part of SQLAlchemy's Result that the store uses."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Row by row."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None, /
    ) -> None: ...
    def all(self) -> list[tuple[Any, ...]]:
        """Every row."""

    def first(self) -> tuple[Any, ...] | None:
        """The first row, if there is one."""

    def one(self) -> tuple[Any, ...]:
        """The only row. Raises NoResultFound where there is none."""

    def one_or_none(self) -> tuple[Any, ...] | None:
        """The only row, if there is one."""

    def scalar(self) -> Any:
        """The first column of the first row, None where there is none."""

    def scalar_one(self) -> Any:
        """The first column of the only row."""

    def scalar_one_or_none(self) -> Any:
        """The first column of the only row, None where there is none."""

    def scalars(self) -> Iterator[Any]:
        """The first column of every row."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""


class Connection(Protocol):
    """What statements of SQLAlchemy Core are executed on; how is up to the database (see edge.statements)."""

    @property
    def dialect(self) -> Dialect:
        """The dialect of the database."""

    @property
    def is_remote(self) -> bool:
        """Whether each answer that is waited for costs a trip."""

    def execute(self, statement: Any, values: dict[str, Any] | Sequence[Mapping[str, Any]] | None = None) -> Rows:
        """The rows of a statement; with a list of values it is executed for each of them."""

    def prefetch(self, statement: Any, values: dict[str, Any]) -> Rows:
        """The same, where it pays without waiting for the answer until somebody reads it."""


class Durability(IntEnum):
    """What an acknowledged write survives; the numbers are those of the contract."""

    NORMAL = 1
    """The end of the process."""
    FULL = 2
    """The loss of power."""


def lock_always(_name: str) -> bool:
    """Lock where there is one writer: nobody else can hold the name."""
    return True


EntryIds = Callable[[int], Sequence[int]]
"""So many numbers of entries that no entry has had, or is going to have of another request."""


def no_entry_ids(_count: int) -> Sequence[int]:
    """Give none, where no entries are made."""
    raise NotImplementedError("this transaction makes no entries")


def followed_by_nobody(_scope: int) -> bool:
    """Follow nothing."""
    return False


DELTA_BYTES_MAX: Final = CHUNK_BYTES
"""Most bytes of deltas that a follower keeps until it takes them: what one message holds."""

DELTAS_MAX: Final = 32
"""Most deltas that a follower keeps."""


class ScopeDelta(Protocol):
    """Everything that a commit changed in a scope, for its followers."""

    @property
    def weight_bytes(self) -> int:
        """About how many bytes it takes."""


class WrittenPaths(Struct, frozen=True):
    """The paths of a run that one moment of a transaction has written, and the revision of its scope then."""

    scope: int
    revision: int
    now_ms: int
    states: Sequence[PathState]
    entries: dict[str, Entry] = field(default_factory=dict)
    """Those that were told already, by path: the view change and the feed tell the same ones."""


class Transaction(Struct):
    """One request's part of a write: the connection, the time of the write, and the scopes it has raised."""

    connection: Connection
    clock_ms: Callable[[], int]
    """Gives `now_ms`; asked once."""
    bumped: dict[int, int] = field(default_factory=dict)
    """The scopes whose revision this moment of the request has raised, and to what."""
    deferred_bumps: dict[int, tuple[Any, Any]] | None = None
    """By scope: from where to where it is to be raised, while that is not written yet (sql.scopes)."""
    passed: set[int] = field(default_factory=set)
    """The scopes that earlier moments of the request have raised."""
    entry_ids: EntryIds = no_entry_ids
    """Gives numbers for new entries."""
    positions: dict[int, int] = field(default_factory=dict)
    """By scope, the last position in its timeline, if this request has assigned some."""
    try_lock: Callable[[str], bool] = lock_always
    """Lock one more name (see domain.locks) until the commit, unless that would mean waiting; whether it is locked.

    What was read before the lock may be old: read it again.
    """
    is_followed: Callable[[int], bool] = followed_by_nobody
    """Whether a scope has followers, who want the delta of this transaction."""
    returns_view_change: ReturnView = ReturnView.NONE
    """What the answer to the request says of what it has changed in the view of its run."""
    stored: list[WrittenPaths] = field(default_factory=list)
    """The entries that were written, of scopes that are followed; all of them where `returns_view_change` is set."""
    deltas: dict[int, ScopeDelta] = field(default_factory=dict)
    """By scope: everything that this transaction has changed."""
    _now_ms: int | None = None

    @property
    def now_ms(self) -> int:
        """The time of the write by the database's clock, which is that of all replicas."""
        if self._now_ms is None:
            self._now_ms = self.clock_ms()
        return self._now_ms

    def next_moment(self) -> None:
        """Let what is written from now on stand at later revisions, and a later time, than what was written so far.

        Time is what ties the revisions of a run to those of what it shares.
        """
        self.passed |= self.bumped.keys()
        self.bumped = {}
        self._now_ms = self.now_ms + 1

    def all_bumped(self) -> set[int]:
        """The scopes whose watchers are woken after the commit."""
        return self.passed | self.bumped.keys()


INLINE_BYTES_MAX: Final = 128 * 1024
"""Bytes of a request up to which its work may run inline, in the event loop."""

ANY_SCOPE: Final = 0
"""Who subscribes to it is woken by every commit that raises a scope; no scope has this number.

A commit that raises it has deleted scopes, whose numbers may be given again.
"""

Work = Callable[[Transaction], T]
Query = Callable[[Connection], T]


class Stats(Struct, frozen=True):
    """What a database has done since it was opened."""

    statements: int
    """Statements on all connections, those that begin and end transactions left out."""
    transactions: int
    """Commits of the writer."""
    requests: int
    """Requests that those commits carried."""
    trips: int = 0
    """How often the writer waited for a database behind a network."""


class RowsOf(Sequence[Mapping[str, Any]]):
    """Rows to insert, each with its values in the order of some columns; the order is that of the table."""

    __slots__ = ("columns", "rows")

    def __init__(self, columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> None:
        self.columns = columns
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return RowsOf(self.columns, self.rows[place])
        return dict(zip(self.columns, self.rows[place], strict=True))


class Subscription(Protocol):
    """Tells that one of some scopes may have changed. Used by one task."""

    @property
    def woken(self) -> asyncio.Event:
        """Set by each commit that raised one of the scopes; the subscriber clears it before it reads."""

    def take_deltas(self) -> Sequence[ScopeDelta] | None:
        """The deltas of the followed scope since the last call; None: a commit has published none.

        Empty where nothing was committed.
        """

    def take(self) -> frozenset[int] | None:
        """For a subscriber to ANY_SCOPE: the scopes that were raised since the last call; None: some may be missing."""

    def close(self) -> None:
        """End it."""


class Database(Protocol):
    """Transactions on the one history of a store."""

    async def write(self, work: Work[T], durability: Durability, locks: Collection[str], *, inline: bool = False) -> T:
        """Run a function in a transaction and return its result after the commit.

        `locks` names everything that the function changes or decides by (see domain.locks): of two writes that share a
        name, on whichever replica, the later one sees all that the earlier one did. The function may run more than
        once, so it has no effects but those on its transaction. What it raises undoes its own changes only. `inline`:
        it reads and writes a few small rows, so that it may run in the event loop (see INLINE_BYTES_MAX). Raises
        QUEUE_FULL, DRAINING, DATABASE_UNAVAILABLE.
        """

    async def read(self, query: Query[T], *, inline: bool = False) -> T:
        """Run a function on one consistent snapshot; `inline` as for a write.

        Raises QUEUE_FULL, DATABASE_UNAVAILABLE.
        """

    def subscribe(self, scopes: Collection[int], follows: int = ANY_SCOPE) -> Subscription:
        """Be woken by commits that raise one of these scopes; `follows` is one of them whose deltas are wanted."""

    def stats(self) -> Stats:
        """What was done so far."""


class OwnedDatabase(Database, Protocol):
    """A database as its owner sees it."""

    async def start(self) -> None:
        """Connect, bring the schema to head, begin to serve. Raises OSError and what it is made of."""

    async def close(self) -> None:
        """Write what waits, then disconnect."""

    async def look(self) -> None:
        """Whether its files are there and sound, as far as that is soon said. Raises DATABASE_UNAVAILABLE."""

    async def read_all(self) -> None:
        """Whether all of its files is sound; may take long. Raises DATABASE_UNAVAILABLE."""
