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

from turnwright_core.entries import Cursor, Entry, State, Visibility
from turnwright_core.instructions import INSTRUCTION_PATHS
from turnwright_core.owner_calls import ReturnView, RunChanges, ViewChange
from turnwright_core.runs import Turn
from turnwright_store.app.read_view import ENTRY_BYTES
from turnwright_store.domain.message_sizes import run_bytes, turn_bytes
from turnwright_store.domain.path_state import ClosedView, PathState, StoredVersion, View
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import DELTA_BYTES_MAX, Transaction, WrittenPaths
from turnwright_store.sql.contents import cut
from turnwright_store.sql.runs import RunHead, RunRow
from turnwright_store.sql.views import ViewFilter, Wanted, is_wanted


class CommitDelta(Struct, frozen=True):
    """Everything that a commit changed in a run, from a revision of its scope on."""

    before: int
    run: RunHead
    """As it is after the commit; a RunRow where the commit wrote the run's row."""
    stored: Sequence[WrittenPaths]
    turns: Sequence[Turn]
    weight_bytes: int
    """About how many bytes it takes in a message."""
    shows_files: bool
    """Whether files of the project were shown beside what was stored: which ones, only the database knows."""

    @property
    def revision(self) -> int:
        """The revision of the run's scope after the commit."""
        return self.run.revision_run

    @property
    def row(self) -> RunRow | None:
        """The run's row, where it was written."""
        return self.run if isinstance(self.run, RunRow) else None


def _path_bytes(state: PathState) -> int:
    made = state.draft
    texts = made.body_size_bytes + 4 * len(made.attributes) + len(made.record) if made else 0
    return ENTRY_BYTES + 3 * len(state.path) + texts


def publish(
    tx: Transaction, before: int, run: RunHead, turns: Sequence[Turn] = (), *, shows_files: bool = False
) -> CommitDelta | None:
    """Publish the delta of a transaction that has changed only this run, since the revision `before`.

    `shows_files`: views of archived project files were added, too. None, and no delta, if a shared scope has changed:
    the effect on the run has to be read from the database.
    """
    scope = run.scope
    is_followed = tx.is_followed(scope)
    if not (is_followed or tx.returns_view_change) or tx.all_bumped() != {scope}:
        return None
    stored = [moment for moment in tx.stored if moment.scope == scope]
    if len(stored) != len(tx.stored):
        return None
    weight = sum(_path_bytes(state) for moment in stored for state in moment.states) + sum(map(turn_bytes, turns))
    if isinstance(run, RunRow):
        weight += run_bytes(run.run)
    if weight > DELTA_BYTES_MAX:
        return None
    delta = CommitDelta(before, run, stored, turns, weight, shows_files)
    if is_followed:
        tx.deltas[scope] = delta
    return delta


class ContentMissingError(Exception):
    """A follower wants content that the commit did not write: only the database has it."""


def merge(deltas: Sequence[CommitDelta], after: Cursor, wanted: Wanted, hidden: Collection[str]) -> RunChanges | None:
    """The deltas of consecutive commits as one message of a watch, for a follower at a cursor.

    None if the database must be read. `hidden`: schemes not in packets.
    """
    fresh = [one for one in deltas if one.revision > after.run_revision]
    if not fresh or not _is_unbroken(fresh, after):
        return None
    try:
        entries, removed = merge_views(fresh, wanted, hidden)
    except ContentMissingError:
        return None
    turns = {turn.number: turn for one in fresh for turn in one.turns}
    row = _last_row(fresh)
    loop = row.run.loop if row else None
    return RunChanges(
        fresh[-1].run.cursor(after.incarnation),
        entries,
        removed,
        row.run if row else None,
        [loop] if loop and loop.revision > after.run_revision else [],
        sorted(turns.values(), key=lambda turn: (turn.revision, turn.number)),
        abort_requested=row is not None and row.abort_requested,
    )


def _is_unbroken(deltas: Sequence[CommitDelta], after: Cursor) -> bool:
    """Whether the deltas begin at the cursor and have no gaps."""
    at = after
    for one in deltas:
        if (one.before, one.run.revision_project, one.run.revision_global) != (
            at.run_revision,
            at.project_revision,
            at.global_revision,
        ):
            return False
        at = one.run.cursor(after.incarnation)
    return True


def _last_row(deltas: Sequence[CommitDelta]) -> RunRow | None:
    rows = [one.row for one in deltas if one.row]
    return rows[-1] if rows else None


def merge_views(
    deltas: Sequence[CommitDelta], wanted: Wanted, hidden: Collection[str]
) -> tuple[list[Entry], list[str]]:
    """What is shown, and the paths of what was shown before, in the order of revisions as the feed has them.

    Raises ContentMissingError.
    """
    shown: dict[str, Entry | None] = {}
    was_shown: dict[str, tuple[int, int] | None] = {}
    for one in deltas:
        if one.shows_files and _wants_archived_files(one.run, wanted, hidden):
            raise ContentMissingError
        for moment in one.stored:
            for state in moment.states:
                path = state.path
                if path not in was_shown:
                    closed = state.closed
                    was_shown[path] = _closed_at(state, closed, one.run, moment, wanted, hidden) if closed else None
                # A path that is shown again comes where its latest view does.
                shown.pop(path, None)
                shown[path] = _entry(state, one.run, moment, wanted, hidden)
    removed = [(place, path) for path, place in was_shown.items() if place and shown[path] is None]
    return [entry for entry in shown.values() if entry], [path for _, path in sorted(removed)]


def _wants_archived_files(run: RunHead, wanted: Wanted, hidden: Collection[str]) -> bool:
    file = ("", run.project_scope, Visibility.ARCHIVED, State.RESOLVED)
    return bool(wanted.include) or is_wanted(wanted.filter, run, hidden, *file)


def _closed_at(
    state: PathState, closed: ClosedView, run: RunHead, moment: WrittenPaths, wanted: Wanted, hidden: Collection[str]
) -> tuple[int, int] | None:
    """The feed position (end and number) of the view that was replaced; None if the follower was not shown it."""
    was = state.path in wanted.include or is_wanted(
        wanted.filter, run, hidden, state.scheme, closed.scope, closed.visibility, closed.state
    )
    return (moment.revision, closed.view) if was else None


def _entry(
    state: PathState, run: RunHead, moment: WrittenPaths, wanted: Wanted, hidden: Collection[str]
) -> Entry | None:
    """The view of a path after a write, if the follower wants it. Raises ContentMissingError."""
    view, content = state.view, state.content
    if view is None:
        return None
    assert content
    if state.path not in wanted.include and not is_wanted(
        wanted.filter, run, hidden, state.scheme, content.scope, view.visibility, view.state
    ):
        return None
    whole = moment.entries.get(state.path)
    if whole is None:
        whole = moment.entries[state.path] = _whole_entry(state, view, content, run, moment)
    body = whole.body if wanted.bodies else ""
    if wanted.body_bytes_max and (bytes_max := wanted.bytes_max(state.scheme)):
        body = cut(body, bytes_max)
    return whole if body == whole.body else replace(whole, body=body)


def _whole_entry(state: PathState, view: View, content: StoredVersion, run: RunHead, moment: WrittenPaths) -> Entry:
    """The entry with its body. Raises ContentMissingError."""
    body = state.draft.body if state.draft else state.given
    if body is None or state.appended:
        raise ContentMissingError
    return Entry(
        path=state.path,
        scheme=state.scheme,
        scope=run.scope_key(content.scope),
        body=body,
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
        revision=moment.revision,
        hash=content.hash,
        update_ms=content.create_ms,
        record=content.record,
    )


_WANTED: Final = {
    ReturnView.PACKET: Wanted(ViewFilter.PACKET, INSTRUCTION_PATHS),
    ReturnView.MESSAGES: Wanted(ViewFilter.MESSAGES, INSTRUCTION_PATHS),
}


def view_change(rules: StoreRules, delta: CommitDelta | None, wanted: ReturnView) -> ViewChange | None:
    """What a commit changed in the view that packets or transcripts are built from.

    None if it was not asked for, or has to be read from the database.
    """
    if delta is None or wanted is ReturnView.NONE:
        return None
    try:
        entries, removed = merge_views([delta], _WANTED[wanted], rules.hidden_schemes)
    except ContentMissingError:
        return None
    after = delta.run.cursor(rules.incarnation)
    is_messages = wanted is ReturnView.MESSAGES
    return ViewChange(replace(after, run_revision=delta.before), after, entries, removed, messages=is_messages)
