"""Stores what the writes of one request came to: a few statements for all of its paths.

Nothing of it has an answer that is waited for: what a row needs to know is known before the first is written.
Source: architecture 3, 12.1.
"""

from __future__ import annotations

from typing import TypeVar

from turnwright_core.checks import over_limit
from turnwright_store.domain.slots import Sight, Slot
from turnwright_store.ports import Stored, Transaction
from turnwright_store.sql import entries as rows
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.next_loop import settle_next_loop
from turnwright_store.sql.runs import Standing, mark_written, moved_on
from turnwright_store.sql.scopes import Reached, raise_known

R = TypeVar("R", bound=Standing)


def store(tx: Transaction, run: R, touched: list[Slot], entries_max: int | None, actor: str) -> R:
    """Write what slots came to; the run with its new revisions.

    Raises LIMIT_EXCEEDED for more than so many entries in the run; None: as many as there are.
    """
    entering = [slot.sight for slot in touched if slot.sight and not slot.sight.position]
    reached = raise_known(tx, run.scope, Reached(run.revision_run, run.places), len(entering))
    if entering and entries_max is not None and reached.places > entries_max:
        raise over_limit("run_entries", entries_max, reached.places, "entries")
    for place, sight in enumerate(entering, reached.places - len(entering) + 1):
        sight.position = place
    heads = {run.scope: reached.revision}
    for scope in sorted({slot.home.scope for slot in touched if slot.draft and slot.home.shared}):
        before = run.revision_project if scope == run.project_scope else run.revision_global
        heads[scope] = raise_known(tx, scope, Reached(before, 0), 0).revision
    _store_content(tx, touched, heads, actor)
    _store_sights(tx, run, touched, reached.revision)
    if not any(slot.sight for slot in touched):
        # Other writes leave a view that tells when they were; retention asks when the last one was.
        mark_written(tx.connection, run.id, tx.now_ms)
    if tx.tells_view or tx.is_followed(run.scope):
        tx.stored.append(Stored(run.scope, reached.revision, tx.now_ms, touched))
    if run.loop_active and any(slot.is_proposal for slot in touched):
        settle_next_loop(tx.connection, run.id)
    return moved_on(
        run,
        reached.revision,
        heads.get(run.project_scope, run.revision_project),
        heads.get(run.global_scope, run.revision_global),
    )


def _store_content(tx: Transaction, touched: list[Slot], heads: dict[int, int], actor: str) -> None:
    drafted = [slot for slot in touched if slot.draft]
    if not drafted:
        return
    fresh = [slot for slot in drafted if not slot.stored_entry]
    if len(fresh) < len(drafted):
        _move_heads(tx, [slot for slot in drafted if slot.stored_entry], heads)
    ids = tx.entry_ids(len(fresh)) if fresh else ()
    now_ms = tx.now_ms
    rows.add_entries(
        tx.connection,
        [_entry(entry, slot, heads[slot.home.scope], now_ms) for entry, slot in zip(ids, fresh, strict=True)],
    )
    for entry, slot in zip(ids, fresh, strict=True):
        slot.stored_as(entry, heads[slot.home.scope], now_ms)
    rows.add_versions(tx.connection, [_version(slot, actor, now_ms) for slot in drafted])


def _move_heads(tx: Transaction, again: list[Slot], heads: dict[int, int]) -> None:
    """The entries that are there already get their drafts as heads."""
    for shared in (False, True):
        among = [slot for slot in again if slot.home.shared is shared]
        moved = [(slot.stored_entry, heads[slot.home.scope]) for slot in among]
        rows.move_heads(tx.connection, moved, shared=shared)
    for slot in again:
        slot.stored_as(slot.stored_entry, heads[slot.home.scope], tx.now_ms)


def _entry(entry: int, slot: Slot, head: int, now_ms: int) -> tuple[object, ...]:
    home = slot.home
    return (entry, home.scope, slot.path, slot.scheme, head, head if home.shared else None, now_ms)


def _version(slot: Slot, actor: str, now_ms: int) -> tuple[object, ...]:
    made, stored = slot.draft, slot.content
    assert made
    assert stored
    attributes, size = made.attributes, made.body_size_bytes
    return (
        version_key(stored.entry, stored.rev), stored.entry, stored.rev, int(made.writer), actor, now_ms, made.hash,
        size, size, len(attributes.encode()) + len(made.record), attributes, made.record, made.body,
    )  # fmt: skip


def _store_sights(tx: Transaction, run: Standing, touched: list[Slot], revision: int) -> None:
    rows.close_views(tx.connection, [slot.left.view for slot in touched if slot.left], revision)
    appended = [slot for slot in touched if slot.appended]
    rows.add_chunks(tx.connection, [_chunk(slot) for slot in appended])
    shown = [_view(slot, slot.sight, run, revision, tx.now_ms) for slot in touched if slot.sight]
    rows.add_views(tx.connection, shown)


def _chunk(slot: Slot) -> dict[str, object]:
    assert slot.content
    return {
        "entry_id": slot.content.entry,
        "version_rev": slot.content.rev,
        "offset": slot.tail,
        "data": "".join(slot.appended),
    }


def _view(slot: Slot, sight: Sight, run: Standing, revision: int, now_ms: int) -> tuple[object, ...]:
    seen = slot.content
    assert seen
    follows_head = seen.scope in (run.project_scope, run.global_scope)
    return (
        run.id, seen.entry, slot.path, revision, None if follows_head else seen.rev, slot.tail + slot.appended_bytes,
        int(sight.visibility), int(sight.state), sight.outcome, sight.turn, sight.loop, sight.position,
        sight.write_count, now_ms,
    )  # fmt: skip
