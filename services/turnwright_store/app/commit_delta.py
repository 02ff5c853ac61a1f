"""Commit deltas: what a commit changed in one run, so that neither its followers nor its owner read the database.

Theory of operation. A use case that knows everything it has written publishes a delta at its end (`publish`). Followers
of the run get it with their wake-up; one whose cursor is exactly where the commit began makes its message from it
(`merge`). In all other cases (no delta, a write to another scope or by another replica, more deltas than a follower
keeps) there is a gap, and the follower reads the database. Deltas are an optimization: the messages are those that
reading would give. The view change that is returned to the writer, for the assembler, is made from the same delta.
Source: architecture 3 (revisions and the change feed), 12.4; docs/adr/0003, docs/adr/0022.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.store import WatchChangesResponse
from turnwright_values.types import Cursor, Entry, State, Turn, ViewChange, ViewFilter, Visibility

from turnwright_core.instructions import INSTRUCTION_PATHS
from turnwright_store.app.read_view import ENTRY_BYTES
from turnwright_store.domain.message_sizes import run_bytes, turn_bytes
from turnwright_store.domain.path_state import PathState, ReplacedView
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import DELTA_BYTES_MAX, Transaction
from turnwright_store.sql.contents import cut
from turnwright_store.sql.runs import RunHead, RunRow
from turnwright_store.sql.views import Wanted


class _WrittenPath(Struct, frozen=True):
    """A path of a run as a moment of a transaction leaves it."""

    path: str
    entry: Entry | None
    """What the run sees there; None: nothing any more."""
    is_whole: bool
    """Whether its body is known; else only the database has it."""
    replaced: ReplacedView | None
    revision: int
    """Of the moment."""

    @property
    def states(self) -> set[State]:
        """Of the view before and of that after it."""
        return {one.state for one in (self.entry, self.replaced) if one}


class CommitDelta(Struct, frozen=True):
    """Everything that a commit changed in a run, from a revision of its scope on."""

    before: int
    run: RunHead
    """As it is after the commit; a RunRow where the commit wrote the run's row."""
    written: Sequence[_WrittenPath]
    turns: Sequence[Turn]
    weight_bytes: int
    """About how many bytes it takes in a message."""
    shows_files: bool
    """Whether files of the project were shown beside what was written: which ones, only the database knows."""


def publish(
    tx: Transaction,
    rules: StoreRules,
    run: RunHead,
    turns: Sequence[Turn] = (),
    *,
    shows_files: bool = False,
    wanted: ViewFilter = ViewFilter.UNSPECIFIED,
) -> ViewChange | None:
    """Publish the delta of a transaction that has changed only this run, and return what of it the caller asked for.

    `shows_files`: views of archived project files were added, too. Nothing is published, and None returned, if nobody
    wants it, or if a shared scope has changed: the effect on the run has to be read from the database.
    """
    if not (wanted or tx.is_followed(run.scope)) or tx.revisions_before.keys() != {run.scope}:
        return None
    written = [_written(state, run, revision) for revision, states in tx.written for state in states]
    if not isinstance(run, RunRow) and any(State.PROPOSED in one.states for one in written):
        # The run's row says when its proposals changed, and is not at hand.
        return None
    entries = [one.entry for one in written if one.entry]
    weight = ENTRY_BYTES * len(entries) + sum(map(turn_bytes, turns))
    for one in entries:
        weight += 3 * len(one.path) + one.body_size_bytes + 4 * len(one.attributes_json) + len(one.record)
    if isinstance(run, RunRow):
        weight += run_bytes(run.run)
    if weight > DELTA_BYTES_MAX:
        return None
    delta = CommitDelta(tx.revisions_before[run.scope], run, written, turns, weight, shows_files)
    tx.deltas[run.scope] = delta
    return _view_change(rules, delta, wanted) if wanted else None


def _written(state: PathState, run: RunHead, revision: int) -> _WrittenPath:
    view, content, before, entry = state.view, state.content, state.before, None
    is_whole = content is not None and content.body is not None and not state.appended
    if view:
        assert content
        entry = Entry(
            path=state.path,
            scheme=state.scheme,
            scope=run.scope_key(content.scope),
            body=content.body or "",
            body_size_bytes=content.body_size_bytes,
            attributes_json=content.attributes,
            visibility=view.visibility,
            state=view.state,
            outcome=view.outcome,
            writer=content.writer,
            turn=view.turn,
            loop=view.loop,
            position=view.position,
            write_count=view.write_count,
            revision=revision,
            hash=content.hash,
            update_ms=content.create_ms,
            record=content.record,
        )
    replaced = None
    if before and before is not view:
        scope = run.scope_key(state.before_scope)
        replaced = ReplacedView(before.id, state.path, state.scheme, scope, before.visibility, before.state)
    return _WrittenPath(state.path, entry, is_whole, replaced, revision)


def merge(
    deltas: Sequence[CommitDelta], after: Cursor, wanted: Wanted, hidden: Collection[str]
) -> WatchChangesResponse | None:
    """The deltas of consecutive commits as one message of a watch, for a follower at a cursor.

    None if the database must be read. `hidden`: schemes not in packets.
    """
    fresh = [one for one in deltas if one.run.revision_run > after.run_revision]
    if not fresh or not _is_unbroken(fresh, after):
        return None
    views = _merge_views(fresh, wanted, hidden)
    if views is None:
        return None
    turns = {turn.number: turn for one in fresh for turn in one.turns}
    row = next((one.run for one in reversed(fresh) if isinstance(one.run, RunRow)), None)
    loop = row.run.loop if row else None
    return WatchChangesResponse(
        entries=views[0],
        removed_paths=views[1],
        run=row.run if row else None,
        loops=[loop] if loop and loop.revision > after.run_revision else [],
        turns=sorted(turns.values(), key=lambda turn: (turn.revision, turn.number)),
        cursor=fresh[-1].run.cursor(after.incarnation),
        abort_requested=row is not None and row.abort_requested,
    )


def _is_unbroken(deltas: Sequence[CommitDelta], after: Cursor) -> bool:
    """Whether the deltas begin at the cursor and have no gaps."""
    at = after
    for one in deltas:
        end = one.run.cursor(after.incarnation)
        if replace(end, run_revision=one.before) != at:
            return False
        at = end
    return True


def _merge_views(
    deltas: Sequence[CommitDelta], wanted: Wanted, hidden: Collection[str]
) -> tuple[list[Entry], list[str]] | None:
    """What is shown, and the paths of what was shown before, in the order of revisions as the feed has them.

    None if a follower wants content that the commit did not write: only the database has it.
    """
    shown: dict[str, Entry | None] = {}
    # By path, the position in the feed of the view that was replaced, its end and number.
    ended: dict[str, tuple[int, int] | None] = {}
    for one in deltas:
        if one.shows_files and (wanted.include or wanted.shows(_PROJECT_FILE, hidden)):
            return None
        for written in one.written:
            path, entry, was = written.path, written.entry, written.replaced
            if path not in ended:
                ended[path] = (written.revision, was.view) if was and wanted.shows(was, hidden) else None
            if entry and not wanted.shows(entry, hidden):
                entry = None
            elif entry and not written.is_whole:
                return None
            # A path that is shown again comes where its latest view does.
            shown.pop(path, None)
            shown[path] = entry
    removed = [(place, path) for path, place in ended.items() if place and shown[path] is None]
    entries = [entry for entry in shown.values() if entry]
    if not wanted.bodies or wanted.body_bytes_max:
        entries = [_cut(entry, wanted) for entry in entries]
    return entries, [path for _, path in sorted(removed)]


_PROJECT_FILE: Final = ReplacedView(0, "", "", "project", Visibility.ARCHIVED, State.RESOLVED)


def _cut(entry: Entry, wanted: Wanted) -> Entry:
    if not wanted.bodies:
        return replace(entry, body="")
    bytes_max = wanted.bytes_max(entry.scheme)
    return replace(entry, body=cut(entry.body, bytes_max)) if 0 < bytes_max < entry.body_size_bytes else entry


_WANTED: Final = {one: Wanted(one, INSTRUCTION_PATHS) for one in ViewFilter}


def _view_change(rules: StoreRules, delta: CommitDelta, wanted: ViewFilter) -> ViewChange | None:
    """What a commit changed of these entries of the view; None if only the database knows."""
    views = _merge_views([delta], _WANTED[wanted], rules.hidden_schemes)
    if views is None:
        return None
    after = delta.run.cursor(rules.incarnation)
    # What was written with a new run, no packet shows.
    is_first = delta.before == 1 and isinstance(delta.run, RunRow) and not delta.run.lineage
    before = replace(after, run_revision=0 if is_first else delta.before)
    return ViewChange(before, after, *views, rules.schemes_version, wanted)
