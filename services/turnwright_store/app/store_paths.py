"""Writes the path states of a request to the database: a few statements for all of its paths.

No statement waits for an answer: numbers and revisions of rows are known before the first one is sent.
Source: architecture 3, 12.1.
"""

from __future__ import annotations

from typing import TypeVar

from turnwright_core.checks import over_limit
from turnwright_store.domain.path_state import PathState, View
from turnwright_store.ports import Transaction, WrittenPaths
from turnwright_store.sql import entries as rows
from turnwright_store.sql.compression import DIGEST_BYTES
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.next_loop import update_next_loop
from turnwright_store.sql.runs import RunHead, mark_written, with_revisions
from turnwright_store.sql.scopes import ScopePosition, bump_if_unchanged

R = TypeVar("R", bound=RunHead)


def store_paths(tx: Transaction, run: R, touched: list[PathState], entries_max: int | None, actor: str) -> R:
    """Write path states; returns the run with its new revisions.

    Raises LIMIT_EXCEEDED for more than so many entries in the run; None: as many as there are.
    """
    entering = [state.view for state in touched if state.view and not state.view.position]
    reached = bump_if_unchanged(tx, run.scope, ScopePosition(run.revision_run, run.positions), len(entering))
    if entering and entries_max is not None and reached.positions > entries_max:
        raise over_limit("run_entries", entries_max, reached.positions, "entries")
    for index, view in enumerate(entering, reached.positions - len(entering) + 1):
        view.position = index
    heads = {run.scope: reached.revision}
    for scope in sorted({state.home.scope for state in touched if state.draft and state.home.shared}):
        before = run.revision_project if scope == run.project_scope else run.revision_global
        heads[scope] = bump_if_unchanged(tx, scope, ScopePosition(before, 0), 0).revision
    now_ms = tx.now_ms
    _store_content(tx, touched, heads, actor, now_ms)
    if not _store_views(tx, run, touched, reached.revision, now_ms):
        # Other writes leave a view that tells when they were; retention asks when the last one was.
        mark_written(tx.connection, run.id, now_ms)
    if tx.returns_view_change or tx.is_followed(run.scope):
        tx.stored.append(WrittenPaths(run.scope, reached.revision, touched))
    if run.loop_active and any(state.is_proposal for state in touched):
        update_next_loop(tx.connection, run.id)
    return with_revisions(
        run,
        reached.revision,
        reached.positions,
        heads.get(run.project_scope, run.revision_project),
        heads.get(run.global_scope, run.revision_global),
    )


def _store_content(tx: Transaction, touched: list[PathState], heads: dict[int, int], actor: str, now_ms: int) -> None:
    drafted = [state for state in touched if state.draft]
    if not drafted:
        return
    fresh = [state for state in drafted if not state.stored_entry]
    if len(fresh) < len(drafted):
        _move_heads(tx, [state for state in drafted if state.stored_entry], heads, now_ms)
    ids = tx.entry_ids(len(fresh)) if fresh else ()
    rows.add_entries(
        tx.connection,
        [_entry(entry, state, heads[state.home.scope]) for entry, state in zip(ids, fresh, strict=True)],
    )
    for entry, state in zip(ids, fresh, strict=True):
        state.stored_as(entry, heads[state.home.scope], now_ms)
    rows.add_versions(tx.connection, [_version(state, actor, now_ms) for state in drafted])


def _move_heads(tx: Transaction, again: list[PathState], heads: dict[int, int], now_ms: int) -> None:
    """The entries that are there already get their drafts as heads."""
    for shared in (False, True):
        among = [state for state in again if state.home.shared is shared]
        moved = [(state.stored_entry, heads[state.home.scope]) for state in among]
        rows.move_heads(tx.connection, moved, shared=shared)
    for state in again:
        state.stored_as(state.stored_entry, heads[state.home.scope], now_ms)


def _entry(entry: int, state: PathState, head: int) -> tuple[object, ...]:
    home = state.home
    return (entry, home.scope, state.path, state.scheme, head, head if home.shared else None)


def _version(state: PathState, actor: str, now_ms: int) -> tuple[object, ...]:
    made, stored = state.draft, state.content
    assert made
    assert stored
    attributes, size = made.attributes, made.body_size_bytes
    digest = made.hash if size >= DIGEST_BYTES else ""
    return (
        version_key(stored.entry, stored.rev), stored.entry, stored.rev, int(made.writer), actor, now_ms, digest,
        size, size, len(attributes.encode()) + len(made.record), attributes, made.record, made.body,
    )  # fmt: skip


def _store_views(tx: Transaction, run: RunHead, touched: list[PathState], revision: int, now_ms: int) -> bool:
    """End and begin intervals of views; whether one has begun."""
    rows.close_views(tx.connection, [state.closed.view for state in touched if state.closed], revision)
    appended = [state for state in touched if state.appended]
    rows.add_chunks(tx.connection, [_chunk(state) for state in appended])
    begun = [_view(state, state.view, run, revision, now_ms) for state in touched if state.view]
    rows.add_views(tx.connection, begun)
    return bool(begun)


def _chunk(state: PathState) -> tuple[object, ...]:
    assert state.content
    return state.content.entry, state.content.rev, state.tail, "".join(state.appended)


def _view(state: PathState, view: View, run: RunHead, revision: int, now_ms: int) -> tuple[object, ...]:
    seen = state.content
    assert seen
    follows_head = seen.scope in (run.project_scope, run.global_scope)
    return (
        run.id, seen.entry, state.path, revision, None if follows_head else seen.rev, state.tail + state.appended_bytes,
        int(view.visibility), int(view.state), view.outcome, view.turn, view.loop, view.position,
        view.write_count, now_ms,
    )  # fmt: skip
