"""Applies the writes of one request to the entries of one run: checks first, then few statements for all of them.

Source: architecture 3, 12.1; rows RU022-RU036, RU048-RU060, RU089-RU095; decisions C9, C32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.chat.timeline import MESSAGE_SCHEMES, named_turn
from turnwright_core.checks import check_bytes, check_count, invalid, over_limit
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
from turnwright_core.errors import InvalidError, Reason, fault
from turnwright_core.kit.auth import Caller
from turnwright_core.owner_calls import ViewChange
from turnwright_core.plans.plan import SCHEME as PLANS
from turnwright_core.text import scheme_of
from turnwright_store.app.store_paths import store_paths
from turnwright_store.domain.checks import (
    OUTCOME_CHARS_MAX,
    check_attributes,
    check_path,
    check_record,
    check_revision,
    check_words,
)
from turnwright_store.domain.limits import WriteLimits
from turnwright_store.domain.locks import paths_of
from turnwright_store.domain.path_state import HomeScope, PathState, StoredVersion, WriteStamp, changes_content
from turnwright_store.domain.permissions import check_record_writer, check_writer, plan_entry_error, writer_of
from turnwright_store.domain.scheme_rules import check_event
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import SQLITE, Transaction
from turnwright_store.sql import entries as rows
from turnwright_store.sql.runs import RunHead

R = TypeVar("R", bound=RunHead)


class WriteResult(Struct, Generic[R], frozen=True):
    """The result of a request's writes."""

    run: R
    """The run with the revisions after the writes."""
    revisions: tuple[int, ...]
    paths: tuple[str, ...]
    view_change: ViewChange | None = None
    """Changes of the run's view, if requested."""


class TurnTag(Struct, frozen=True):
    """The default turn and loop for the writes of a request; None: the views keep theirs."""

    turn: int | None = None
    loop: int | None = None


_NO_TURN: Final = TurnTag()


def check_writes(
    rules: StoreRules, caller: Caller, writes: Sequence[EntryWrite], *, of_plans: bool = False
) -> list[EntryWrite]:
    """Check writes and fill in their writers, before anything is read. Raises the error of the first bad one.

    `of_plans`: they come from a plan rpc; other requests cannot write plans.
    """
    check_count("writes", len(writes), rules.limits.writes_max)
    checked = []
    for write in writes:
        try:
            checked.append(_checked(rules, caller, write, of_plans=of_plans))
        except InvalidError as error:
            raise _with_path(write, error) from None
    return checked


def _with_path(write: EntryWrite, error: InvalidError) -> Exception:
    """The refusal of one write among many: by its path a caller knows whose fault it is."""
    return fault(error.reason, error.message, **{"path": write.path, **error.metadata})


def _checked(rules: StoreRules, caller: Caller, write: EntryWrite, *, of_plans: bool) -> EntryWrite:
    check_path(write.path, rules.limits.path_chars_max)
    writer = writer_of(caller, write.writer)
    if writer is not write.writer:
        write = replace(write, writer=writer)
    if isinstance(write.change, SetEntry):
        scheme = scheme_of(write.path) or ""
        check_writer(rules.scheme(scheme), writer, write.path)
        if scheme == PLANS and not of_plans:
            raise plan_entry_error(write.path)
        _check_set(rules.limits, write.path, scheme, write.change)
        if write.change.record is not None:
            check_record_writer(writer, write.path)
        return write
    if isinstance(write.change, (CopyEntry, MoveEntry)):
        _check_target(rules.limits, write.path, write.change.to)
    for path in written_paths(write):
        scheme = scheme_of(path) or ""
        check_writer(rules.scheme(scheme), write.writer, path)
        if scheme == PLANS and not of_plans:
            raise plan_entry_error(path)
    if isinstance(write.change, AppendEntry):
        check_bytes("text", write.change.text, rules.limits.append_bytes_max)
    return write


def _check_target(limits: WriteLimits, path: str, to: str) -> None:
    check_path(to, limits.path_chars_max, "to")
    if to == path:
        raise invalid("to", f"{to} is both source and destination.")


def _check_set(limits: WriteLimits, path: str, scheme: str, change: SetEntry) -> None:
    if change.body is not None:
        check_bytes("body", change.body, limits.body_bytes_max)
    if change.attributes_json is not None:
        check_attributes(change.attributes_json, limits.attributes_bytes_max)
    if change.merge_attributes_json is not None:
        check_attributes(change.merge_attributes_json, limits.attributes_bytes_max, "merge_attributes_json")
    if change.outcome:
        check_words("outcome", change.outcome, OUTCOME_CHARS_MAX)
    if change.record:
        check_record(change.record, limits.attributes_bytes_max)
    if scheme == "event":
        check_event(path, change)


def written_paths(write: EntryWrite) -> tuple[str, ...]:
    """The paths that a write changes: a copy only reads its source."""
    if isinstance(write.change, CopyEntry):
        return (write.change.to,)
    return (write.path, write.change.to) if isinstance(write.change, MoveEntry) else (write.path,)


def apply_writes(
    tx: Transaction,
    rules: StoreRules,
    run: R,
    writes: Sequence[EntryWrite],
    actor: str,
    turn_tag: TurnTag = _NO_TURN,
    *,
    is_unbounded: bool = False,
) -> WriteResult[R]:
    """Apply checked writes and bump the scopes that they touch. Raises if the state does not allow one.

    `is_unbounded`: accept them however many entries the run has. For the end of a loop and for decisions: a full run
    must be able to end.
    """
    if not writes:
        return WriteResult(run, (), ())
    states = _PathStates(tx, rules, run)
    # Entries come into the view in this order.
    states.load(paths_of(writes))
    states.load_bodies(writes)
    results = []
    # Most writes of a request are stamped alike.
    stamps: dict[object, WriteStamp] = {}
    for write in writes:
        state = states.state_for(write)
        if write.expected_revision is not None:
            check_revision(state.path, write.expected_revision, state.stored_revision)
        _check_turn(run, write, turn_tag)
        same = (write.writer, write.turn, write.loop)
        stamp = stamps.get(same) or stamps.setdefault(same, _stamp(run, write, turn_tag))
        try:
            results.append((state.path, _apply(states, state, write, stamp)))
        except InvalidError as error:
            raise _with_path(write, error) from None
    touched = states.touched()
    entries_max = None if is_unbounded else rules.limits.run_entries_max
    after = store_paths(tx, run, touched, entries_max, actor) if touched else run
    revisions = tuple([after.revision_run if is_changed else 0 for _, is_changed in results])
    return WriteResult(after, revisions, tuple([path for path, _ in results]))


def _check_turn(run: RunHead, write: EntryWrite, turn_tag: TurnTag) -> None:
    """Refuse a message of a turn that does not exist (OM06).

    Records of the log are stamped with their turn, since models write to the log too, under any path.
    """
    scheme = scheme_of(write.path)
    if scheme not in MESSAGE_SCHEMES:
        return
    turn = write.turn or 0
    if scheme in ("prompt", "assistant") and (named := named_turn(write.path) or 0) > turn:
        turn = named
    if turn > run.turn and turn > (turn_tag.turn or 0):
        latest = turn_tag.turn or run.turn
        raise fault(
            Reason.TURN_NOT_FOUND,
            f"{write.path} is of turn {turn}, and the latest of {run.alias} is turn {latest}: begin the turn first.",
            run=run.alias,
            turn=turn,
        )


def _stamp(run: RunHead, write: EntryWrite, turn_tag: TurnTag) -> WriteStamp:
    return WriteStamp(
        write.writer,
        turn_tag.turn if write.turn is None else write.turn,
        turn_tag.loop if write.loop is None else write.loop,
        run.turn,
        run.loop_active,
    )


def _apply(states: _PathStates, state: PathState, write: EntryWrite, stamp: WriteStamp) -> bool:
    change = write.change
    if not isinstance(change, (CopyEntry, MoveEntry)):
        return state.apply(change, stamp, states.read_body)
    if state.draft:
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
        wanted: dict[StoredVersion, int] = {}
        for write in writes:
            state = self._by_path[write.path]
            if state.content is not None and state.view and _needs_body(write.change, state):
                wanted[state.content] = state.tail
        if wanted:
            self._check_bodies(sum(content.body_size_bytes + tail for content, tail in wanted.items()))
            self._bodies = rows.load_bodies(self._tx.connection, wanted)

    def read_body(self, content: StoredVersion, tail: int) -> str:
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
        """Load the states of paths from what is stored."""
        known = self._by_path
        fresh = {path: self._place_of(path) for path in paths if path not in known}
        asked = self._prefetch(fresh)
        found = rows.find_visible(self._tx.connection, self._run.id, fresh)
        # A path can have a view of an entry in another scope, and an entry in its own scope too.
        not_at_home = {
            path: place
            for path, place in fresh.items()
            if path not in found or found[path].content.scope != place[1].scope
        }
        at_home = self._at_home(not_at_home, asked)
        for path, (scheme, place) in fresh.items():
            home = at_home.get(path)
            stored = found.get(path) or home
            if stored is None:
                known[path] = PathState(path, scheme, place, self.limits, None, 0, None)
                continue
            has_two = home is not None and path in found
            mine = HomeScope(place.scope, place.shared, home.content.entry) if home and has_two else place
            known[path] = PathState(path, scheme, mine, self.limits, stored.content, stored.tail, stored.view)

    def _prefetch(self, places: Mapping[str, tuple[str, HomeScope]]) -> dict[int, list[Any] | None]:
        """Prefetch what is stored at these paths, if the database is remote."""
        if self._tx.connection.dialect == SQLITE:
            return {}
        return {
            scope: rows.prefetch_in_scope(self._tx.connection, scope, paths)
            for scope, paths in _by_scope(places).items()
        }

    def _place_of(self, path: str) -> tuple[str, HomeScope]:
        """The scheme of a path, and where its entries are made."""
        scheme = scheme_of(path) or ""
        home = self._homes.get(scheme)
        if home is None:
            scope = self._scope_of[self._rules.scheme(scheme).default_scope]
            home = self._homes[scheme] = HomeScope(scope, scope != self._run.scope)
        return scheme, home

    def _at_home(
        self, places: Mapping[str, tuple[str, HomeScope]], asked: Mapping[int, list[Any] | None]
    ) -> dict[str, rows.StoredPath]:
        found: dict[str, rows.StoredPath] = {}
        for scope, inside in _by_scope(places).items():
            find = rows.find_in_own_scope if scope == self._run.scope else rows.find_in_scope
            found |= find(self._tx.connection, scope, inside, asked.get(scope))
        return found

    def state_for(self, write: EntryWrite) -> PathState:
        """The state of the path that a write goes to: a new record never takes the path of another one."""
        state = self._by_path[write.path]
        is_new_record = isinstance(write.change, SetEntry) and write.change.state is State.RECORDED
        if not (is_new_record and state.scheme == "log" and state.is_taken and write.expected_revision is None):
            return state
        number = self._next_suffix.get(write.path, 2)
        while (candidate := self._candidate(f"{write.path}+{number}")).is_taken:
            number += 1
        self._next_suffix[write.path] = number + 1
        return candidate

    def _candidate(self, path: str) -> PathState:
        check_path(path, self.limits.path_chars_max)
        self.load([path])
        return self._by_path[path]


def _by_scope(places: Mapping[str, tuple[str, HomeScope]]) -> dict[int, dict[str, None]]:
    """Paths by the scope that their entries are made in."""
    by_scope: dict[int, dict[str, None]] = {}
    for path, (_, home) in places.items():
        by_scope.setdefault(home.scope, {})[path] = None
    return by_scope


def _needs_body(change: EntryChange, state: PathState) -> bool:
    """Whether a write probably reads the stored body."""
    if isinstance(change, SetEntry):
        return change.body is None and changes_content(change)
    return isinstance(change, CopyEntry | MoveEntry) or (isinstance(change, AppendEntry) and state.home.shared)
