"""Batch changes by pattern: get, rm, cp or mv for every matching entry, all or none.

Theory of operation (optimistic locking). Patterns are matched on a reader connection, because that takes time; then one
write changes what was found. Each change expects the revision that was matched, and the write checks whether anything
else has been written that the pattern may match: if so, nothing is written, and everything is retried a few times.

Source: rows RU024-RU027, RU150, RU259.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.store import CopyEntry, EntryWrite, MoveEntry, SetEntry, WriteEntriesRequest
from turnwright_values.types import Cursor, Tier

from turnwright_core.checks import check_chars, invalid, over_limit
from turnwright_core.destinations import destination
from turnwright_core.entries import EntryChange, destination_of
from turnwright_core.errors import ConflictError, Reason, TurnwrightError, fault
from turnwright_core.limits import PATTERN_CHARS_MAX
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.matching import match
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.history import run_at
from turnwright_store.app.ledger import check_fence
from turnwright_store.app.list_entries import EntryQuery, matching_entries
from turnwright_store.app.read_view import find_view_delta
from turnwright_store.app.write_entries import write_entries
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.pages import ANSWER_BYTES_MAX
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.write_rules import check_path
from turnwright_store.ports import Transaction
from turnwright_store.sql.runs import RunHead, get_run_head
from turnwright_store.sql.views import Wanted

T = TypeVar("T")

CHANGE_ATTEMPTS_MAX: Final = 5
"""Attempts at a change by pattern if entries change between matching and writing; a run has few writers."""


class PatternChange(Struct, frozen=True):
    """A change, and the entries it is for."""

    change: EntryChange
    """That of each entry; a copy or a move says where all of them go. A `get` sets only the visibility."""
    pattern: str
    body_pattern: str = ""
    writer: Tier = Tier.UNSPECIFIED


class Match(Struct, frozen=True):
    """A matching entry, and its destination."""

    path: str
    to: str
    revision: int
    body_size_bytes: int


class ChangePlan(Struct, frozen=True):
    """What to change, as of a moment; or why nothing can be changed."""

    change: PatternChange
    matches: tuple[Match, ...] = ()
    cursor: Cursor | None = None
    refusal: TurnwrightError | None = None

    @property
    def paths(self) -> set[str]:
        return {path for one in self.matches for path in (one.path, one.to) if path}


def plan_changes(
    connection: Connection, rules: StoreRules, address: RunRef, change: PatternChange, check_time: Callable[[], None]
) -> ChangePlan:
    """Find the matches. Raises ENTRY_NOT_FOUND, LIMIT_EXCEEDED, and INVALID_FIELD if destinations collide."""
    run = get_run_head(connection, address.project, address.run)
    try:
        query = EntryQuery(change.pattern, change.body_pattern, bodies=False)
        now = run_at(connection, run, rules.incarnation, None)
        fitting = list(matching_entries(connection, rules, now, query, "", check_time))
    except PatternError as error:
        raise invalid("pattern", str(error)) from None
    if not fitting:
        message = f"Nothing in {address.run} matches {change.pattern!r}."
        raise fault(Reason.ENTRY_NOT_FOUND, message, path=change.pattern)
    matches = tuple(
        Match(one.path, _to(change, one.path, len(fitting)), one.revision, one.body_size_bytes) for one in fitting
    )
    _check_size(rules, matches)
    if destination_of(change.change):
        _check_destinations(rules, matches)
    return ChangePlan(change, matches, run.cursor(rules.incarnation))


def check_change(change: PatternChange) -> None:
    """Refuse a change without a pattern or destination."""
    if not change.pattern:
        raise invalid("pattern", "pattern is required.")
    check_chars("pattern", change.pattern, PATTERN_CHARS_MAX)
    check_chars("body_pattern", change.body_pattern, PATTERN_CHARS_MAX)
    if destination_of(change.change) == "":
        verb = "copy" if isinstance(change.change, CopyEntry) else "move"
        raise invalid("to", f"To {verb} entries, say where they go.")


def _to(change: PatternChange, source: str, count: int) -> str:
    to = destination_of(change.change) or ""
    if not to or (count == 1 and not to.endswith("/")):
        return to
    return destination(change.pattern, source, to)


def _check_size(rules: StoreRules, matches: Sequence[Match]) -> None:
    if len(matches) > rules.limits.writes_max:
        raise over_limit("pattern", rules.limits.writes_max, len(matches), "matches")
    path_bytes = sum(len(one.path.encode()) + len(one.to.encode()) for one in matches)
    if path_bytes > ANSWER_BYTES_MAX:
        raise over_limit("pattern", ANSWER_BYTES_MAX, path_bytes, "bytes of matching paths")


def _check_destinations(rules: StoreRules, matches: Sequence[Match]) -> None:
    sources = {one.path for one in matches}
    for to, count in Counter(one.to for one in matches).items():
        if count > 1:
            raise invalid("to", f"{count} entries would go to {to}: name a folder that keeps them apart.")
        if to in sources:
            raise invalid("to", f"{to} is both source and destination.")
        check_path(to, rules.limits.path_chars_max, "to")


def apply_changes(
    tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, epoch: int | None, planned: ChangePlan
) -> Cursor:
    """Write what was planned; returns the cursor after it.

    Raises REVISION_CONFLICT if something was written that the pattern may match.
    """
    run = get_run_head(tx.connection, address.project, address.run)
    if epoch is not None:
        # First: a lost lease must be reported, whatever matches.
        check_fence(run, epoch)
    if planned.refusal:
        raise planned.refusal
    if run.cursor(rules.incarnation) != planned.cursor:
        _check_current(tx.connection, rules, address, planned)
    writes = [_write(run, planned.change, one) for one in planned.matches]
    call = WriteEntriesRequest(address.project, address.run, epoch, writes)
    return write_entries(tx, rules, caller, call).cursor


def _check_current(connection: Connection, rules: StoreRules, address: RunRef, planned: ChangePlan) -> None:
    """Refuse an outdated plan."""
    found = find_view_delta(connection, rules, address, planned.cursor, Wanted(bodies=False))
    for one in found.shown:
        if one.path in planned.paths or match(planned.change.pattern, one.path):
            message = f"{one.path} has changed since it was matched: repeat the call."
            raise fault(Reason.REVISION_CONFLICT, message, path=one.path)


def _write(run: RunHead, change: PatternChange, one: Match) -> EntryWrite:
    """The write for one entry. `get` stamps the run as the last to touch it (RU024)."""
    what, turn, loop = change.change, None, None
    if isinstance(what, SetEntry):
        turn, loop = run.turn, run.loop_active or None
    elif isinstance(what, CopyEntry | MoveEntry):
        what = replace(what, to=one.to)
    return EntryWrite(one.path, what, change.writer, one.revision, turn, loop)


async def change_entries(
    find_plan: Callable[[], Awaitable[ChangePlan]], write: Callable[[ChangePlan], Awaitable[T]]
) -> T:
    """Match and write, with retries on conflicts. Raises REVISION_CONFLICT after CHANGE_ATTEMPTS_MAX attempts."""
    attempt = 1
    while True:
        planned = await find_plan()
        try:
            return await write(planned)
        except ConflictError as error:
            if error.reason is not Reason.REVISION_CONFLICT or attempt >= CHANGE_ATTEMPTS_MAX:
                raise
        attempt += 1
