"""Applies the writes of one request to the entries of one run: checks first, then few statements for all of them.

Source: architecture 3, 12.1; rows RU022-RU036, RU048-RU060, RU089-RU095; decisions C9, C32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from turnwright_core.entries import (
    AppendEntry,
    CopyEntry,
    EntryChange,
    EntryWrite,
    MoveEntry,
    RemoveEntry,
    SetEntry,
    State,
)
from turnwright_core.kit.auth import Caller
from turnwright_core.text import scheme_of
from turnwright_store.domain.basis import Basis
from turnwright_store.domain.checks import (
    OUTCOME_CHARS_MAX,
    check_attributes,
    check_bytes,
    check_chars,
    check_count,
    check_path,
    check_revision,
    invalid,
    over_limit,
)
from turnwright_store.domain.limits import WriteLimits
from turnwright_store.domain.permissions import check_writer, writer_of
from turnwright_store.domain.scheme_rules import check_entry
from turnwright_store.domain.slots import Content, Home, Slot, Stamp, gives_content
from turnwright_store.ports import Transaction
from turnwright_store.sql import entries as rows
from turnwright_store.sql.runs import Standing
from turnwright_store.sql.scopes import raise_revision

R = TypeVar("R", bound=Standing)


@dataclass(frozen=True, slots=True)
class Written(Generic[R]):
    """What a request's writes came to."""

    run: R
    """The run with the revisions after the writes."""
    revisions: tuple[int, ...]
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Turning:
    """The turn and loop that the writes of a request belong to, where they do not say; None: the views keep theirs."""

    turn: int | None = None
    loop: int | None = None


def check_writes(basis: Basis, caller: Caller, writes: Sequence[EntryWrite]) -> list[EntryWrite]:
    """The writes with their writers settled. Raises what forbids one of them, before anything is read."""
    check_count("writes", len(writes), basis.limits.writes_max)
    return [_checked(basis, caller, write) for write in writes]


def _checked(basis: Basis, caller: Caller, write: EntryWrite) -> EntryWrite:
    check_path(write.path, basis.limits.path_chars_max)
    writer = writer_of(caller, write.writer)
    if writer is not write.writer:
        write = replace(write, writer=writer)
    if isinstance(write.change, CopyEntry | MoveEntry):
        _check_target(basis.limits, write.path, write.change.to)
    for path in written_paths(write):
        check_writer(basis.scheme(scheme_of(path) or ""), write.writer, path)
    if isinstance(write.change, SetEntry):
        _check_set(basis.limits, write.path, write.change)
    elif isinstance(write.change, AppendEntry):
        check_bytes("text", write.change.text, basis.limits.append_bytes_max)
    return write


def _check_target(limits: WriteLimits, path: str, to: str) -> None:
    check_path(to, limits.path_chars_max, "to")
    if to == path:
        raise invalid("to", f"{to} is both source and destination.")


def _check_set(limits: WriteLimits, path: str, change: SetEntry) -> None:
    if change.body is not None:
        check_bytes("body", change.body, limits.body_bytes_max)
    if change.attributes_json is not None:
        check_attributes(change.attributes_json, limits.attributes_bytes_max)
    if change.merge_attributes_json is not None:
        check_attributes(change.merge_attributes_json, limits.attributes_bytes_max, "merge_attributes_json")
    check_chars("outcome", change.outcome or "", OUTCOME_CHARS_MAX)
    check_entry(scheme_of(path) or "", path, change)


def written_paths(write: EntryWrite) -> tuple[str, ...]:
    """The paths that a write changes: a copy only reads its source."""
    if isinstance(write.change, CopyEntry):
        return (write.change.to,)
    return (write.path, write.change.to) if isinstance(write.change, MoveEntry) else (write.path,)


def apply_writes(
    tx: Transaction,
    basis: Basis,
    run: R,
    writes: Sequence[EntryWrite],
    actor: str,
    turning: Turning = Turning(),
) -> Written[R]:
    """Apply checked writes and raise the scopes that they touch. Raises what the state forbids."""
    if not writes:
        return Written(run, (), ())
    slots = _Slots(tx, basis, run)
    slots.load(_paths_in_order(writes))
    slots.load_bodies(writes)
    changed, paths = [], []
    for write in writes:
        slot = slots.slot_for(write)
        check_revision(slot.path, write.expected_revision, slot.stored_revision)
        changed.append(_apply(slots, slot, write, _stamp(run, write, turning)))
        paths.append(slot.path)
    after = _store(tx, run, slots, actor)
    revisions = tuple(after.revision_run if is_changed else 0 for is_changed in changed)
    return Written(after, revisions, tuple(paths))


def _paths_in_order(writes: Sequence[EntryWrite]) -> Iterator[str]:
    """Every path that writes touch; entries come into the view in this order."""
    for write in writes:
        yield write.path
        if isinstance(write.change, CopyEntry | MoveEntry):
            yield write.change.to


def _stamp(run: Standing, write: EntryWrite, turning: Turning) -> Stamp:
    return Stamp(
        write.writer,
        turning.turn if write.turn is None else write.turn,
        turning.loop if write.loop is None else write.loop,
        run.turn,
        run.loop_active,
    )


def _apply(slots: _Slots, slot: Slot, write: EntryWrite, stamp: Stamp) -> bool:
    change = write.change
    if not isinstance(change, CopyEntry | MoveEntry):
        return slot.apply(change, stamp, slots.read_body)
    if slot.draft:
        # It is not read, but written once more.
        slots.count_body(slot.body_bytes)
    copied = slot.copied(change.visibility, slots.read_body)
    target = slots.at(change.to)
    check_entry(target.scheme, target.path, copied)
    target.apply(copied, stamp, slots.read_body)
    return slot.apply(RemoveEntry(), stamp, slots.read_body) if isinstance(change, MoveEntry) else True


class _Slots:
    """The slots of a request, by path."""

    def __init__(self, tx: Transaction, basis: Basis, run: Standing) -> None:
        self._tx = tx
        self._basis = basis
        self._run = run
        self._by_path: dict[str, Slot] = {}
        self._next_suffix: dict[str, int] = {}
        self._scope_of = {"run": run.scope, "project": run.project_scope, "global": run.global_scope}
        self._bodies: dict[int, str] = {}
        self._bodies_bytes = 0
        self.limits = basis.limits

    def at(self, path: str) -> Slot:
        """The slot of a path that was loaded."""
        return self._by_path[path]

    def touched(self) -> list[Slot]:
        """The slots that writes went to, in the order of the first writes, ready to be stored."""
        touched = [slot for slot in self._by_path.values() if slot.touched]
        for slot in touched:
            slot.settle(self.read_body)
        return touched

    def load_bodies(self, writes: Sequence[EntryWrite]) -> None:
        """Read at once the stored bodies that the writes need. Raises LIMIT_EXCEEDED when they are too many."""
        wanted: dict[Content, int] = {}
        for write in writes:
            slot = self._by_path[write.path]
            if slot.content and slot.sight and _needs_body(write.change, slot):
                wanted[slot.content] = slot.tail
        self._check_bodies(sum(content.body_bytes + tail for content, tail in wanted.items()))
        self._bodies = rows.load_bodies(self._tx.connection, wanted)

    def read_body(self, content: Content, tail: int) -> str:
        """A stored body. Raises LIMIT_EXCEEDED when the request has taken too much."""
        self.count_body(content.body_bytes + tail)
        if content.version not in self._bodies:
            self._bodies |= rows.load_bodies(self._tx.connection, {content: tail})
        return self._bodies[content.version]

    def count_body(self, body_bytes: int) -> None:
        """Refuse a request that would hold more bodies than memory is meant for; a copy alone costs it only a path."""
        self._bodies_bytes += body_bytes
        self._check_bodies(self._bodies_bytes)

    def _check_bodies(self, actual: int) -> None:
        limit = self.limits.bodies_bytes_max
        if actual > limit:
            raise over_limit("writes", limit, actual, "bytes of bodies")

    def load(self, paths: Iterable[str]) -> None:
        """Make slots for paths, with what is stored under them."""
        fresh = [path for path in dict.fromkeys(paths) if path not in self._by_path]
        found = rows.seen(self._tx.connection, self._run.id, fresh)
        # Of a path that is seen with an entry of another scope, its own scope may hold one too.
        elsewhere = [path for path in fresh if path not in found or found[path].content.scope != self._scope(path)]
        at_home = self._at_home(elsewhere)
        for path in fresh:
            home = at_home.get(path)
            stored = found.get(path) or home
            scope = self._scope(path)
            shared = scope != self._run.scope
            place = Home(scope, shared, home.content.entry if home and path in found else 0)
            content, tail, sight = (stored.content, stored.tail, stored.sight) if stored else (None, 0, None)
            self._by_path[path] = Slot(path, scheme_of(path) or "", place, self.limits, content, tail, sight)

    def _at_home(self, paths: Iterable[str]) -> dict[str, rows.Stored]:
        by_scope: dict[int, list[str]] = {}
        for path in paths:
            by_scope.setdefault(self._scope(path), []).append(path)
        found: dict[str, rows.Stored] = {}
        for scope, inside in by_scope.items():
            find = rows.unseen_own if scope == self._run.scope else rows.unseen
            found |= find(self._tx.connection, scope, inside)
        return found

    def _scope(self, path: str) -> int:
        return self._scope_of[self._basis.scheme(scheme_of(path) or "").default_scope]

    def slot_for(self, write: EntryWrite) -> Slot:
        """The slot that a write goes to: a new record never takes the path of another one."""
        slot = self._by_path[write.path]
        is_new_record = isinstance(write.change, SetEntry) and write.change.state is State.RECORDED
        if not (is_new_record and slot.scheme == "log" and slot.is_taken and write.expected_revision is None):
            return slot
        number = self._next_suffix.get(write.path, 2)
        while (candidate := self._candidate(f"{write.path}+{number}")).is_taken:
            number += 1
        self._next_suffix[write.path] = number + 1
        return candidate

    def _candidate(self, path: str) -> Slot:
        check_path(path, self.limits.path_chars_max)
        self.load([path])
        return self._by_path[path]


def _needs_body(change: EntryChange, slot: Slot) -> bool:
    """Whether a write reads the stored body, as far as can be told before the writes are applied."""
    if isinstance(change, SetEntry):
        return change.body is None and gives_content(change)
    return isinstance(change, CopyEntry | MoveEntry) or (isinstance(change, AppendEntry) and slot.home.shared)


def _store(tx: Transaction, run: R, slots: _Slots, actor: str) -> R:
    """Write what the slots came to; the run with its new revisions."""
    touched = slots.touched()
    if not touched:
        return run
    entering = [slot for slot in touched if slot.sight and not slot.sight.position]
    revision, last_place = raise_revision(tx, run.scope, len(entering))
    if entering and last_place > slots.limits.run_entries_max:
        raise over_limit("run_entries", slots.limits.run_entries_max, last_place, "entries")
    for place, slot in enumerate(entering, last_place - len(entering) + 1):
        assert slot.sight
        slot.sight.position = place
    heads = {run.scope: revision}
    for scope in sorted({slot.home.scope for slot in touched if slot.draft and slot.home.shared}):
        heads[scope], _ = raise_revision(tx, scope)
    _store_content(tx, touched, heads, actor)
    _store_sights(tx, run, touched, revision)
    return replace(
        run,
        revision_run=revision,
        revision_project=heads.get(run.project_scope, run.revision_project),
        revision_global=heads.get(run.global_scope, run.revision_global),
    )


def _store_content(tx: Transaction, touched: list[Slot], heads: dict[int, int], actor: str) -> None:
    drafted = [slot for slot in touched if slot.draft]
    fresh = [slot for slot in drafted if not slot.stored_entry]
    ids = rows.add_entries(tx.connection, [_entry(slot, heads[slot.home.scope], tx.now_ms) for slot in fresh])
    moved = [{"entry": entry, "new_head": heads[slot.home.scope]} for slot in drafted if (entry := slot.stored_entry)]
    rows.move_heads(tx.connection, moved)
    for slot in drafted:
        slot.stored_as(slot.stored_entry or ids[slot.home.scope, slot.path], heads[slot.home.scope])
    rows.add_versions(tx.connection, [_version(slot, actor, tx.now_ms) for slot in drafted])


def _entry(slot: Slot, head: int, now_ms: int) -> dict[str, object]:
    return {
        "scope_id": slot.home.scope,
        "path": slot.path,
        "scheme": slot.scheme,
        "head_rev": head,
        "create_ms": now_ms,
    }


def _version(slot: Slot, actor: str, now_ms: int) -> dict[str, object]:
    assert slot.draft
    assert slot.content
    return {
        "entry_id": slot.content.entry,
        "from_rev": slot.content.rev,
        "writer": int(slot.draft.writer),
        "actor": actor,
        "create_ms": now_ms,
        "hash": slot.draft.hash,
        "body_bytes": slot.draft.body_bytes,
        "stored_bytes": slot.draft.body_bytes,
        "attributes_bytes": len(slot.draft.attributes.encode()),
        "attributes": slot.draft.attributes,
        "body": slot.draft.body,
    }


def _store_sights(tx: Transaction, run: Standing, touched: list[Slot], revision: int) -> None:
    rows.close_views(tx.connection, [view for slot in touched for view in slot.closed], revision)
    appended = [slot for slot in touched if slot.appended]
    rows.add_chunks(tx.connection, [_chunk(slot) for slot in appended])
    shown = [_view(slot, run, revision, tx.now_ms) for slot in touched if slot.sight]
    rows.add_views(tx.connection, shown)


def _chunk(slot: Slot) -> dict[str, object]:
    assert slot.content
    return {
        "entry_id": slot.content.entry,
        "version_rev": slot.content.rev,
        "offset": slot.tail,
        "data": "".join(slot.appended),
    }


def _view(slot: Slot, run: Standing, revision: int, now_ms: int) -> dict[str, object]:
    assert slot.sight
    assert slot.content
    sight = slot.sight
    follows_head = slot.content.scope in (run.project_scope, run.global_scope)
    return {
        "run_id": run.id,
        "entry_id": slot.content.entry,
        "path": slot.path,
        "from_rev": revision,
        "version_rev": None if follows_head else slot.content.rev,
        "chunk_bytes": slot.tail + slot.appended_bytes,
        "visibility": int(sight.visibility),
        "state": int(sight.state),
        "outcome": sight.outcome,
        "turn": sight.turn,
        "loop": sight.loop,
        "position": sight.position,
        "write_count": sight.write_count,
        "create_ms": now_ms,
    }
