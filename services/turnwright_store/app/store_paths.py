"""Writes the path states of a request to the database: a few statements for all of its paths.

No statement waits for an answer: numbers and revisions of rows are known before the first one is sent.
Source: architecture 3, 12.1.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace
from turnwright_values.types import State

from turnwright_core.checks import over_limit
from turnwright_store.domain.path_state import PathState
from turnwright_store.ports import Transaction
from turnwright_store.sql import entries as rows
from turnwright_store.sql.compression import DIGEST_BYTES
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.next_loop import update_next_loop
from turnwright_store.sql.runs import RunHead, RunRow, mark_written, with_revisions
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
    drafted = [state for state in touched if state.is_draft]
    heads = {run.scope: reached.revision}
    for scope in sorted({state.home.scope for state in drafted if state.home.shared}):
        before = run.revision_project if scope == run.project_scope else run.revision_global
        heads[scope] = bump_if_unchanged(tx, scope, ScopePosition(before, 0), 0).revision
    if drafted:
        _store_versions(tx, drafted, heads, actor)
    _store_views(tx, run, touched, reached.revision)
    tx.written.append((reached.revision, touched))
    views = [view for state in touched for view in (state.before, state.view) if view]
    if State.PROPOSED in [view.state for view in views]:
        # An undecided proposal blocks its run, and lists of runs count it.
        update_next_loop(tx.connection, run.id, tx.now_ms)
        if isinstance(run, RunRow):
            run = replace(run, run=replace(run.run, update_ms=tx.now_ms))
    return with_revisions(
        run,
        reached.revision,
        reached.positions,
        heads.get(run.project_scope, run.revision_project),
        heads.get(run.global_scope, run.revision_global),
    )


def _store_versions(tx: Transaction, drafted: list[PathState], heads: dict[int, int], actor: str) -> None:
    """Store the drafts as versions, of new entries or as the heads of those that are there."""
    added, moved, versions = [], [], []
    now_ms = tx.now_ms
    missing = sum([not state.home_entry for state in drafted])
    ids = iter(tx.entry_ids(missing) if missing else ())
    for state in drafted:
        draft, home, entry = state.content, state.home, state.home_entry
        assert draft
        head = heads[home.scope]
        if entry:
            moved.append((entry, head, home.shared))
        else:
            entry = next(ids)
            shared_rev = head if home.shared else None
            place = {"scope_id": home.scope, "path": state.path, "scheme": state.scheme}
            added.append({"id": entry, **place, "head_rev": head, "shared_rev": shared_rev})
        size, attributes, record = draft.body_size_bytes, draft.attributes, draft.record
        versions.append(
            {
                "id": version_key(entry, head),
                "entry_id": entry,
                "from_rev": head,
                "writer": int(draft.writer),
                "actor": actor,
                "create_ms": now_ms,
                "hash": draft.hash if size >= DIGEST_BYTES else "",
                "body_size_bytes": size,
                "stored_bytes": size,
                "attributes_bytes": len(attributes.encode()) + len(record),
                "attributes": attributes,
                "record": record or None,
                "body": draft.body,
            }
        )
        state.content = draft._replace(entry=entry, rev=head, create_ms=now_ms)
    if added:
        tx.connection.execute(rows.ENTRIES, added)
    if moved:
        rows.move_heads(tx.connection, moved)
    tx.connection.execute(rows.VERSIONS, versions)


def _store_views(tx: Transaction, run: RunHead, touched: list[PathState], revision: int) -> None:
    """End and begin intervals of views."""
    ended, chunks, begun = [], [], []
    shared, now_ms = (run.project_scope, run.global_scope), tx.now_ms
    for state in touched:
        view, seen, before = state.view, state.content, state.before
        if before and before is not view:
            ended.append(before.id)
        if state.appended:
            assert seen
            data = "".join(state.appended)
            chunks.append({"entry_id": seen.entry, "version_rev": seen.rev, "offset": state.tail, "data": data})
        if view:
            assert seen
            begun.append(
                {
                    "run_id": run.id,
                    "entry_id": seen.entry,
                    "path": state.path,
                    "from_rev": revision,
                    "version_rev": None if seen.scope in shared else seen.rev,
                    "chunk_bytes": state.tail + state.appended_bytes,
                    "visibility": int(view.visibility),
                    "state": int(view.state),
                    "outcome": view.outcome,
                    "turn": view.turn,
                    "loop": view.loop,
                    "position": view.position,
                    "write_count": view.write_count,
                    "create_ms": now_ms,
                }
            )
    if ended:
        rows.close_views(tx.connection, ended, revision)
    if chunks:
        tx.connection.execute(rows.CHUNKS, chunks)
    if begun:
        tx.connection.execute(rows.VIEWS, begun)
    else:
        # Other writes leave a view that tells when they were; retention asks when the last one was.
        mark_written(tx.connection, run.id, now_ms)
