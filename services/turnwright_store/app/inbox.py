"""The inbox: proposals that wait for a decision in any run, as pages and as a stream.

Theory of operation. A watcher has no queue. It remembers which rows it has sent; when a commit wakes it, it reads the
ids of all waiting rows from an index that contains nothing else, and sends the difference. Commits are far more
frequent than decisions, so it reads at most every INBOX_PAUSE_S. Contents are read for new rows only. Source:
architecture 7; rows RU009, RU013, RU244, RU246.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, field
from sqlalchemy import Connection
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.types import Entry

from turnwright_core.batching import split_by_weight
from turnwright_core.checks import invalid
from turnwright_kit.identity.policy import Policy
from turnwright_store.app.read_view import weight_of
from turnwright_store.domain.checks import page_size
from turnwright_store.domain.pages import decode_page_token, page_of
from turnwright_store.ports import ANY_SCOPE, Database, Subscription
from turnwright_store.sql import inbox as rows
from turnwright_store.sql.agents import runs_below
from turnwright_store.sql.contents import find_entry, load_entries
from turnwright_store.sql.entries import batched
from turnwright_store.sql.inbox import InboxRow
from turnwright_store.sql.registry import get_project
from turnwright_store.sql.runs import find_run, get_run_head, load_runs
from turnwright_store.sql.views import EntryRow, Wanted

INBOX_PAUSE_S: Final = 0.1
"""Minimum time between two reads of one watcher, in seconds."""

ROWS_A_READ: Final = 100
"""Proposals whose contents are read at a time; each may have a few hundred kilobytes."""

_START: Final = (0, 0)
_ALL: Final = 2**31


class WaitingProposal(Struct, frozen=True):
    """A record that waits for a decision."""

    project: str
    run: str
    entry: Entry
    since_ms: int

    @property
    def is_for_people(self) -> bool:
        """Whether a person decides; otherwise a client executes it."""
        effect = CommandRecord.FromString(self.entry.record).proposed.effect
        return effect.WhichOneof("kind") not in ("client_tool", "agents")


class ClosedProposal(Struct, frozen=True):
    """A record that no longer waits; None if it or its run was removed."""

    project: str
    run: str
    path: str
    entry: Entry | None


class InboxMessage(Struct, frozen=True):
    """One message of a watch; a heartbeat if it is empty."""

    pending: Sequence[WaitingProposal] = ()
    decided: Sequence[ClosedProposal] = ()
    complete: bool = True


def list_proposals(
    connection: Connection, names: Sequence[str] | None, project: str, run: str, size: int, token: str
) -> tuple[list[WaitingProposal], str]:
    """A page of the proposals that wait in a run and its agents, a project or all, the longest waiting first.

    `names`: in place of all projects, those with one of these names, if there are any. Raises PROJECT_NOT_FOUND,
    RUN_NOT_FOUND.
    """
    if run and not project:
        raise invalid("project", "Name the project of the run, too.")
    size = page_size(size)
    since_ms, view = decode_page_token(token, int, int) or _START
    after = int(since_ms), int(view)
    head = get_run_head(connection, project, run) if run else None
    of_runs = [head.id, *runs_below(connection, head.id)] if head else None
    owner = get_project(connection, project) if project else None
    found = rows.page_of_waiting(connection, owner, of_runs, after, size + 1, names)
    shown = rows.entry_rows_of(connection, [one.view for one in found])
    there = [one for one in found if one.view in shown]
    page, next_token = page_of(there, size, _page_position, lambda one: weight_of(shown[one.view], Wanted()))
    return [one for _, one in _load_records(connection, page, shown) if one.is_for_people], next_token


def _page_position(row: InboxRow) -> tuple[int, int]:
    return row.since_ms, row.view


def _load_records(
    connection: Connection, waiting: Sequence[InboxRow], shown: dict[int, EntryRow]
) -> list[tuple[int, WaitingProposal]]:
    """The records of rows, each with its row, in order; those whose run was removed meanwhile are left out."""
    runs = {run.id: run for run in load_runs(connection, sorted({one.run for one in waiting}))}
    found = []
    for one in waiting:
        if run := runs.get(one.run):
            entry = load_entries(connection, run, [shown[one.view]], Wanted())[0]
            found.append((one.view, WaitingProposal(run.run.project, run.run.run, entry, one.since_ms)))
    return found


# ---- Following


class _SentRow(Struct, frozen=True):
    """A record that a watcher has been sent, or need not be."""

    project: str
    run: str
    path: str
    is_shown: bool


class InboxWatch(Struct):
    """What one watcher has been sent, by row."""

    database: Database
    subscription: Subscription
    project: str
    shown: Callable[[], Sequence[str] | None]
    """The projects that the watcher may see now, if none is named; None: all."""
    sent: dict[int, _SentRow] = field(default_factory=dict)
    is_complete: bool = False
    """Whether everything that waited at the beginning has been sent."""
    pause_s: float = INBOX_PAUSE_S

    def heartbeat(self) -> InboxMessage:
        return InboxMessage()

    async def read(self, *, is_woken: bool, is_due: bool) -> AsyncIterator[InboxMessage]:  # noqa: ARG002 - as others
        """The changes since the last call, as messages. Raises PROJECT_NOT_FOUND."""
        if not is_woken:
            return
        names = None if self.project else self.shown()
        waiting = await self.database.read(partial(_waiting, project=self.project, names=names))
        if names is not None:
            # What is closed to the watcher by now has not been decided: nothing is told of it.
            self.sent = {view: sent for view, sent in self.sent.items() if sent.project in names}
        now = {one.view for one in waiting}
        closed = [self.sent.pop(view) for view in [view for view in self.sent if view not in now]]
        new = [one for one in waiting if one.view not in self.sent]
        again: set[_SentRow] = set()
        for part in batched(new, ROWS_A_READ):
            pending = await self.database.read(partial(_pending, waiting=part))
            self.sent |= {view: _sent_row(one) for view, one in pending}
            again |= {_sent_row(one) for _, one in pending}
            for message in split_by_weight([one for _, one in pending if one.is_for_people], _bytes):
                yield InboxMessage(message, complete=self.is_complete)
        # A record that was written again while it waits has a new row, and was sent above.
        for left in batched([sent for sent in closed if sent.is_shown and sent not in again], ROWS_A_READ):
            decided = await self.database.read(partial(_decided, left=left))
            yield InboxMessage(decided=decided, complete=self.is_complete)
        if not self.is_complete:
            self.is_complete = True
            yield InboxMessage()


async def watch_inbox(
    database: Database, project: str, shown: Callable[[], Sequence[str] | None], policy: Policy
) -> InboxWatch:
    """Begin a watch of what waits in a project, or in all; the first reading raises PROJECT_NOT_FOUND."""
    subscription = database.subscribe((ANY_SCOPE,))
    policy.notifies(subscription.woken)
    return InboxWatch(database, subscription, project, shown)


def _waiting(connection: Connection, project: str, names: Sequence[str] | None) -> list[InboxRow]:
    of = get_project(connection, project) if project else None
    return rows.page_of_waiting(connection, of, None, _START, _ALL, names)


def _pending(connection: Connection, waiting: Sequence[InboxRow]) -> list[tuple[int, WaitingProposal]]:
    """The records of rows, each with its row; removed ones are left out."""
    shown = rows.entry_rows_of(connection, [one.view for one in waiting])
    there = [one for one in waiting if one.view in shown]
    return _load_records(connection, there, shown)


def _decided(connection: Connection, left: Sequence[_SentRow]) -> list[ClosedProposal]:
    return [ClosedProposal(sent.project, sent.run, sent.path, _entry_of(connection, sent)) for sent in left]


def _entry_of(connection: Connection, sent: _SentRow) -> Entry | None:
    run = find_run(connection, sent.project, sent.run)
    return find_entry(connection, run, sent.path, bodies=False) if run else None


def _sent_row(one: WaitingProposal) -> _SentRow:
    return _SentRow(one.project, one.run, one.entry.path, one.is_for_people)


def _bytes(one: WaitingProposal) -> int:
    entry = one.entry
    return len(entry.attributes_json) + len(entry.record) + entry.body_size_bytes + len(entry.path)
