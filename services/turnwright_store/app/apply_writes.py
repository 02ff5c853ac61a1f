"""Applies the writes of one request to the entries of one run: checks first, then few statements for all of them.

Source: architecture 3, 12.1; rows RU022-RU036, RU048-RU060, RU089-RU095; decisions C9, C32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.store import AppendEntry, CopyEntry, EntryWrite, MoveEntry, RemoveEntry, SetEntry
from turnwright_values.types import State

from turnwright_core.chat.timeline import MESSAGE_SCHEMES, named_turn
from turnwright_core.checks import over_limit
from turnwright_core.entries import EntryChange
from turnwright_core.errors import InvalidError, Reason, fault
from turnwright_core.text import scheme_of
from turnwright_store.app.approval_rules import check_allowed
from turnwright_store.app.quotas import count_command
from turnwright_store.domain.locks import paths_of
from turnwright_store.domain.path_state import EntryVersion, HomeScope, PathState, WriteStamp, changes_content
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.write_rules import (
    check_event,
    check_path,
    check_revision,
    with_path,
)
from turnwright_store.ports import Transaction
from turnwright_store.sql import entries as rows
from turnwright_store.sql.compression import DIGEST_BYTES
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.next_loop import update_next_loop
from turnwright_store.sql.runs import RunHead, RunRow, load_runs, mark_written, with_revisions
from turnwright_store.sql.scopes import ScopePosition, bump_if_unchanged


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


R = TypeVar("R", bound=RunHead)


class WriteResult(Struct, Generic[R], frozen=True):
    """The result of a request's writes."""

    run: R
    """The run with the revisions after the writes."""
    revisions: tuple[int, ...]
    paths: tuple[str, ...]


def apply_writes(
    tx: Transaction,
    rules: StoreRules,
    run: R,
    writes: Sequence[EntryWrite],
    actor: str,
    *,
    turn: int | None = None,
    loop: int | None = None,
    is_unbounded: bool = False,
) -> WriteResult[R]:
    """Apply checked writes and bump the scopes that they touch. Raises if the state does not allow one.

    `turn` and `loop` are for writes that say none; None: the views keep theirs. `is_unbounded`: accept them however
    many entries the run has. For the end of a loop and for decisions: a full run must be able to end.
    """
    if not writes:
        return WriteResult(run, (), ())
    states = _PathStates(tx, rules, run)
    # Entries come into the view in this order.
    states.load(paths_of(writes))
    states.load_bodies(writes)
    results = []
    for write in writes:
        state = states.state_for(write)
        if write.expected_revision is not None:
            check_revision(state.path, write.expected_revision, state.view.revision if state.view else 0)
        if write.granted_tool:
            _check_allowed(tx, rules, run, write)
        if state.scheme in MESSAGE_SCHEMES:
            _check_turn(run, state.scheme, write, turn or run.turn)
        stamp = WriteStamp(
            write.writer,
            turn if write.turn is None else write.turn,
            loop if write.loop is None else write.loop,
            run.turn,
            run.loop_active,
        )
        try:
            results.append((state.path, _apply(states, state, write.change, stamp)))
        except InvalidError as error:
            raise with_path(write, error) from None
    touched = states.touched()
    entries_max = None if is_unbounded else rules.limits.run_entries_max
    after = store_paths(tx, run, touched, entries_max, actor) if touched else run
    revisions = tuple([after.revision_run if is_changed else 0 for _, is_changed in results])
    return WriteResult(after, revisions, tuple([path for path, _ in results]))


def _check_allowed(tx: Transaction, rules: StoreRules, run: RunHead, write: EntryWrite) -> None:
    """Refuse an effect on which nobody has decided, if the run does not allow it without asking (any more)."""
    (row,) = load_runs(tx.connection, [run.id])
    record = write.change.record if isinstance(write.change, SetEntry) else None
    if check_allowed(tx, rules, row, write.granted_tool, record or b""):
        count_command(tx, row, row.asked_by)


def _check_turn(run: RunHead, scheme: str, write: EntryWrite, latest: int) -> None:
    """Refuse a message of a turn that does not exist (OM06).

    Records of the log are stamped with their turn, since models write to the log too, under any path.
    """
    turn = write.turn or 0
    if scheme in ("prompt", "assistant") and (named := named_turn(write.path) or 0) > turn:
        turn = named
    if turn > max(run.turn, latest):
        raise fault(
            Reason.TURN_NOT_FOUND,
            f"{write.path} is of turn {turn}, and the latest of {run.alias} is turn {latest}: begin the turn first.",
            run=run.alias,
            turn=turn,
        )


def _apply(states: _PathStates, state: PathState, change: EntryChange, stamp: WriteStamp) -> bool:
    if not isinstance(change, (CopyEntry, MoveEntry)):
        return state.apply(change, stamp, states.read_body)
    if state.content and state.content.body is not None:
        # It is not read, but written once more.
        states.count_body(state.body_size_bytes)
    copied = state.copy_write(change.visibility, states.read_body)
    target = states.at(change.to)
    if target.scheme == "event":
        check_event(target.path, copied)
    target.apply(copied, stamp, states.read_body)
    return state.apply(RemoveEntry(), stamp, states.read_body) if isinstance(change, MoveEntry) else True


class _PathStates:
    """The path states of a request."""

    def __init__(self, tx: Transaction, rules: StoreRules, run: RunHead) -> None:
        self._tx = tx
        self._rules = rules
        self._run = run
        self._by_path: dict[str, PathState] = {}
        self._next_suffix: dict[str, int] = {}
        self._homes: dict[str, HomeScope] = {}
        self._scope_of = {"run": run.scope, "project": run.project_scope, "global": run.global_scope}
        self._bodies: dict[int, str] = {}
        self._bodies_bytes = 0
        self.limits = rules.limits

    def at(self, path: str) -> PathState:
        return self._by_path[path]

    def touched(self) -> list[PathState]:
        """The states of the paths that were written, in the order of the first writes, ready to be stored."""
        touched = [state for state in self._by_path.values() if state.touched]
        for state in touched:
            if state.appended:
                state.merge_appended(self.read_body)
        return touched

    def load_bodies(self, writes: Sequence[EntryWrite]) -> None:
        """Read at once the stored bodies that the writes need. Raises LIMIT_EXCEEDED when they are too many."""
        wanted: dict[EntryVersion, int] = {}
        for write in writes:
            state = self._by_path[write.path]
            if state.content is not None and state.view and _needs_body(write.change, state):
                wanted[state.content] = state.tail
        if wanted:
            self._check_bodies(sum(content.body_size_bytes + tail for content, tail in wanted.items()))
            self._bodies = rows.load_bodies(self._tx.connection, wanted)

    def read_body(self, content: EntryVersion, tail: int) -> str:
        """A stored body. Raises LIMIT_EXCEEDED when the request has taken too much."""
        self.count_body(content.body_size_bytes + tail)
        if content.version not in self._bodies:
            self._bodies |= rows.load_bodies(self._tx.connection, {content: tail})
        return self._bodies[content.version]

    def count_body(self, body_size_bytes: int) -> None:
        """Limit the memory of a request: copies are small requests with large bodies."""
        self._bodies_bytes += body_size_bytes
        self._check_bodies(self._bodies_bytes)

    def _check_bodies(self, actual: int) -> None:
        limit = self.limits.bodies_bytes_max
        if actual > limit:
            raise over_limit("writes", limit, actual, "bytes of bodies")

    def load(self, paths: Iterable[str]) -> None:
        fresh = {path: self._place_of(path) for path in paths if path not in self._by_path}
        scopes = {home.scope for _, home in fresh.values()}
        stored = rows.find_at_paths(self._tx.connection, self._run.id, self._run.scope, scopes, fresh)
        for path, (scheme, home) in fresh.items():
            seen, other = stored.get((path, 0)), stored.get((path, home.scope))
            found = seen or other
            at_home = other or (seen if seen and seen.content.scope == home.scope else None)
            content, tail, view = (found.content, found.tail, found.view) if found else (None, 0, None)
            entry, scope = at_home.content.entry if at_home else 0, content.scope if content else 0
            self._by_path[path] = PathState(path, scheme, home, entry, self.limits, content, tail, view, view, scope)

    def _place_of(self, path: str) -> tuple[str, HomeScope]:
        """The scheme of a path, and where its entries are made."""
        scheme = scheme_of(path) or ""
        home = self._homes.get(scheme)
        if home is None:
            scope = self._scope_of[self._rules.scheme(scheme).default_scope]
            home = self._homes[scheme] = HomeScope(scope, scope != self._run.scope)
        return scheme, home

    def state_for(self, write: EntryWrite) -> PathState:
        """The state of the path that a write goes to: a new record never takes the path of another one."""
        state = self._by_path[write.path]
        is_new_record = isinstance(write.change, SetEntry) and write.change.state is State.RECORDED
        if not (is_new_record and state.scheme == "log" and state.content and write.expected_revision is None):
            return state
        number = self._next_suffix.get(write.path, 2)
        while (candidate := self._candidate(f"{write.path}+{number}")).content:
            number += 1
        self._next_suffix[write.path] = number + 1
        return candidate

    def _candidate(self, path: str) -> PathState:
        check_path(path, self.limits.path_chars_max)
        self.load([path])
        return self._by_path[path]


def _needs_body(change: EntryChange, state: PathState) -> bool:
    """Whether a write probably reads the stored body."""
    if isinstance(change, SetEntry):
        return change.body is None and changes_content(change)
    return isinstance(change, CopyEntry | MoveEntry) or (isinstance(change, AppendEntry) and state.home.shared)
