"""Orphaned streams: ends streams whose producer is gone, an executor that died or a client that left.

A client that produces must send heartbeats (empty appends) within the grace period. The owner of a run need not: its
lease is its heartbeat. All channels of a stream end together; what was received is kept.
Source: architecture 11 (streaming channels without a producer: 499 after the grace time); row RU237.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from turnwright_values.store import Durability, EntryWrite, SetEntry
from turnwright_values.types import State, Tier

from turnwright_core.streams import PRODUCER, PRODUCER_LOST, record_of_channel
from turnwright_kit.auth import Caller
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.maintenance import Chore, poll_interval_s, process_row
from turnwright_store.app.streams import EndKind, StreamEnd, end_channels, open_channels
from turnwright_store.domain.locks import write_locks
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql.contents import find_entry, load_entries
from turnwright_store.sql.runs import RunRow, find_run
from turnwright_store.sql.streams import StreamPosition, list_silent
from turnwright_store.sql.views import EntryRow, Wanted, find_entry_row

PAGE: Final = 100
"""Silent channels to find at a time."""

_STORE: Final = Caller("store", Tier.SYSTEM, Tier.SYSTEM)
_LOST: Final = "its producer is gone"

Silent = tuple[str, str, str]
"""Project, run and path of a channel."""


def orphaned_streams(database: Database, rules_now: Callable[[], StoreRules], grace_ms: int) -> Chore:
    """The chore for streams that have been silent for this many milliseconds."""

    async def step() -> bool:
        place: StreamPosition | None = (0, 0)
        while place is not None:
            silent, place = await database.read(partial(list_silent, grace_ms=grace_ms, after=place, page=PAGE))
            # Each on its own: one that cannot be ended does not block the others.
            for one in silent:
                await _end_one(database, rules_now(), one, grace_ms)
        return False

    return Chore("orphaned_streams", poll_interval_s(grace_ms), step)


async def _end_one(database: Database, rules: StoreRules, silent: Silent, grace_ms: int) -> None:
    """End a silent stream; without its figures if its record has no room for them."""
    project, run, path = silent
    locks = write_locks(rules, project, run, [path])
    for ends_channel in (True, False):
        work = partial(end_orphaned, rules=rules, silent=silent, grace_ms=grace_ms, ends_channel=ends_channel)
        writing = database.write(work, Durability.NORMAL, locks)
        if await process_row(writing, "silence", project=project, run=run, path=path, record=ends_channel) is None:
            return


def end_orphaned(tx: Transaction, rules: StoreRules, silent: Silent, grace_ms: int, *, ends_channel: bool) -> None:
    """End a silent channel without a producer, together with its stream if it has a record."""
    project, alias, path = silent
    run = find_run(tx.connection, project, alias)
    shown = find_entry_row(tx.connection, run.id, path) if run else None
    if run is None or shown is None or shown.state != State.STREAMING:
        return
    if _is_silent(tx, run, shown, tx.now_ms - grace_ms) and not _is_held(tx, rules, run, shown):
        _end(tx, rules, run, path, ends_channel=ends_channel)


def _is_silent(tx: Transaction, run: RunRow, shown: EntryRow, since_ms: int) -> bool:
    """Whether all channels of the stream are silent."""
    channel = record_of_channel(shown.path)
    others = open_channels(tx, run, channel[0]) if channel else []
    return all(one.view_ms <= since_ms for one in (shown, *others))


def _is_held(tx: Transaction, rules: StoreRules, run: RunRow, shown: EntryRow) -> bool:
    """Whether the owner of the run produces it and is alive."""
    (channel,) = load_entries(tx.connection, run, [shown], Wanted(bodies=False))
    if PRODUCER in channel.attributes:
        return False
    return bool(run.lease_owner) and run.lease_expires_ms + rules.lease_grace_ms > tx.now_ms


def _end(tx: Transaction, rules: StoreRules, run: RunRow, path: str, *, ends_channel: bool) -> None:
    """End the whole stream if the channel has a record, else the channel alone."""
    channel = record_of_channel(path) if ends_channel else None
    record = find_entry(tx.connection, run, channel[0], bodies=False) if channel else None
    if record is not None:
        ending = StreamEnd(record.path, EndKind.CANCELLED, _STORE.principal, reason=_LOST, outcome=PRODUCER_LOST)
        end_channels(tx, rules, _STORE, run, record, ending)
        return
    # Written with the store's own tier, whatever the scheme allows others.
    write = EntryWrite(path, SetEntry(state=State.CANCELLED, outcome=PRODUCER_LOST), Tier.SYSTEM)
    apply_writes(tx, rules, run, [write], _STORE.principal)
