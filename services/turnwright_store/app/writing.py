"""Applies the writes of one request to the entries of one run: checks first, then few statements for all of them.

Source: architecture 3, 12.1; rows RU022-RU036, RU048-RU060, RU089-RU095; decisions C9, C32.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from turnwright_core.entries import AppendEntry, EntryWrite, SetEntry, State
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.auth import Caller
from turnwright_core.limits import BODY_BYTES_MAX, WRITES_MAX
from turnwright_core.text import scheme_of
from turnwright_store.domain.basis import Basis
from turnwright_store.domain.checks import (
    APPEND_BYTES_MAX,
    OUTCOME_CHARS_MAX,
    check_attributes,
    check_bytes,
    check_chars,
    check_count,
    check_path,
)
from turnwright_store.domain.permissions import check_writer, writer_of
from turnwright_store.domain.slots import Slot, Stamp
from turnwright_store.ports import Transaction
from turnwright_store.sql import entries as rows
from turnwright_store.sql.runs import RunRow
from turnwright_store.sql.scopes import raise_revision


@dataclass(frozen=True, slots=True)
class Written:
    """What a request's writes came to."""

    run: RunRow
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
    check_count("writes", len(writes), WRITES_MAX)
    return [_checked(basis, caller, write) for write in writes]


def _checked(basis: Basis, caller: Caller, write: EntryWrite) -> EntryWrite:
    check_path(write.path)
    writer = writer_of(caller, write.writer)
    check_writer(basis.scheme(scheme_of(write.path) or ""), writer, write.path)
    change = write.change
    if isinstance(change, SetEntry):
        if change.body is not None:
            check_bytes("body", change.body, BODY_BYTES_MAX)
        if change.attributes_json is not None:
            check_attributes(change.attributes_json)
        check_chars("outcome", change.outcome or "", OUTCOME_CHARS_MAX)
    elif isinstance(change, AppendEntry):
        check_bytes("text", change.text, APPEND_BYTES_MAX)
    return replace(write, writer=writer)


def apply_writes(
    tx: Transaction,
    basis: Basis,
    run: RunRow,
    writes: Sequence[EntryWrite],
    actor: str,
    turning: Turning = Turning(),
) -> Written:
    """Apply checked writes and raise the scopes that they touch. Raises what the state forbids."""
    if not writes:
        return Written(run, (), ())
    slots = _Slots(tx, basis, run)
    slots.load(write.path for write in writes)
    read_body = rows.body_reader(tx.connection)
    changed, paths = [], []
    for write in writes:
        slot = slots.slot_for(write)
        _check_revision(write, slot)
        stamp = Stamp(
            write.writer,
            turning.turn if write.turn is None else write.turn,
            turning.loop if write.loop is None else write.loop,
            run.run.turn,
            run.loop_active,
        )
        changed.append(slot.apply(write.change, stamp, read_body))
        paths.append(slot.path)
    after = _store(tx, run, [slot for slot in slots.all() if slot.touched], actor)
    revisions = tuple(after.revision_run if is_changed else 0 for is_changed in changed)
    return Written(after, revisions, tuple(paths))


def _check_revision(write: EntryWrite, slot: Slot) -> None:
    expected, actual = write.expected_revision, slot.stored_revision
    if expected is not None and expected != actual:
        raise fault(
            Reason.REVISION_CONFLICT,
            f"{slot.path} is at revision {actual}, not {expected}: read it again, then repeat.",
            path=slot.path,
            expected=expected,
            actual=actual,
        )


class _Slots:
    """The slots of a request, by path."""

    def __init__(self, tx: Transaction, basis: Basis, run: RunRow) -> None:
        self._tx = tx
        self._basis = basis
        self._run = run
        self._by_path: dict[str, Slot] = {}
        self._next_suffix: dict[str, int] = {}
        self._scope_of = {"run": run.scope, "project": run.project_scope, "global": run.global_scope}

    def all(self) -> Iterable[Slot]:
        """Every slot, in the order of the first writes."""
        return self._by_path.values()

    def load(self, paths: Iterable[str]) -> None:
        """Make slots for paths, with what is stored under them."""
        fresh = [path for path in dict.fromkeys(paths) if path not in self._by_path]
        found = rows.seen(self._tx.connection, self._run.id, fresh)
        missing: dict[int, list[str]] = {}
        for path in fresh:
            if path not in found:
                missing.setdefault(self._scope(path), []).append(path)
        stored = {
            path: content
            for scope, unseen in missing.items()
            for path, content in rows.unseen(self._tx.connection, scope, unseen).items()
        }
        for path in fresh:
            sight, content = found.get(path, (None, stored.get(path)))
            scope = self._scope(path)
            self._by_path[path] = Slot(path, scheme_of(path) or "", scope, scope != self._run.scope, content, sight)

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
        check_path(path)
        self.load([path])
        return self._by_path[path]


def _store(tx: Transaction, run: RunRow, touched: list[Slot], actor: str) -> RunRow:
    """Write what the slots came to; the run with its new revisions."""
    if not touched:
        return run
    entering = [slot for slot in touched if slot.sight and not slot.sight.position]
    revision, last_place = raise_revision(tx, run.scope, len(entering))
    for place, slot in enumerate(entering, last_place - len(entering) + 1):
        assert slot.sight
        slot.sight.position = place
    heads = {run.scope: revision}
    for scope in sorted({slot.scope for slot in touched if slot.draft and slot.shared}):
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
    fresh = [slot for slot in drafted if slot.content is None]
    new = [_entry(slot, heads[slot.scope], tx.now_ms) for slot in fresh]
    ids = rows.add_entries(tx.connection, new)
    moved = [{"entry": slot.content.entry, "new_head": heads[slot.scope]} for slot in drafted if slot.content]
    rows.move_heads(tx.connection, moved)
    for slot in drafted:
        if slot.content:
            slot.stored_as(slot.content.entry, heads[slot.scope])
    for slot in fresh:
        slot.stored_as(ids[slot.scope, slot.path], heads[slot.scope])
    rows.add_versions(tx.connection, [_version(slot, actor, tx.now_ms) for slot in drafted])


def _entry(slot: Slot, head: int, now_ms: int) -> dict[str, object]:
    return {"scope_id": slot.scope, "path": slot.path, "scheme": slot.scheme, "head_rev": head, "create_ms": now_ms}


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


def _store_sights(tx: Transaction, run: RunRow, touched: list[Slot], revision: int) -> None:
    rows.close_views(tx.connection, [view for slot in touched for view in slot.closed], revision)
    appended = [slot for slot in touched if slot.appended]
    rows.add_chunks(tx.connection, [_chunk(slot) for slot in appended])
    shown = [_view(slot, run.id, revision, tx.now_ms) for slot in touched if slot.sight]
    rows.add_views(tx.connection, shown)


def _chunk(slot: Slot) -> dict[str, object]:
    assert slot.sight
    assert slot.content
    return {
        "entry_id": slot.content.entry,
        "version_rev": slot.content.rev,
        "offset": slot.sight.chunk_bytes,
        "data": slot.appended,
    }


def _view(slot: Slot, run_id: int, revision: int, now_ms: int) -> dict[str, object]:
    assert slot.sight
    assert slot.content
    sight = slot.sight
    return {
        "run_id": run_id,
        "entry_id": slot.content.entry,
        "path": slot.path,
        "from_rev": revision,
        "version_rev": None if slot.shared else slot.content.rev,
        "chunk_bytes": sight.chunk_bytes + len(slot.appended.encode()),
        "visibility": int(sight.visibility),
        "state": int(sight.state),
        "outcome": sight.outcome,
        "turn": sight.turn,
        "loop": sight.loop,
        "position": sight.position,
        "write_count": sight.write_count,
        "create_ms": now_ms,
    }
