"""Leases: claiming, renewing and releasing runs, and the queue of claimable work.

A lease is an owner, an epoch (the fencing token) and an expiry on the database's clock. A claim gets a new epoch;
writes are checked against the epoch alone, so an owner that was slow but not replaced loses nothing. Source:
architecture 3 (runs, loops, turns, leases), 11; rows RU109-RU111; C36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.store import ClaimRunResponse, Durability, GetLeaseResponse, Lease, LeaseState
from turnwright_values.types import Entry, FileConstraint, Model, Run

from turnwright_core.checks import check_chars, check_count, invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_store.app.approval_rules import rules_in
from turnwright_store.app.commit_delta import publish
from turnwright_store.app.control import get_spend
from turnwright_store.app.ledger import begin_loop, check_fence
from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.checks import ROOT_CHARS_MAX, page_size
from turnwright_store.domain.locks import REGISTRY_LOCK, run_lock
from turnwright_store.domain.message_sizes import ROW_BYTES, run_bytes
from turnwright_store.domain.names import RunRef, records_prefix
from turnwright_store.domain.pages import ANSWER_BYTES_MAX, page_of
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import leases as lease_rows
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql import registry
from turnwright_store.sql import turns as turn_rows
from turnwright_store.sql import work as work_rows
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.packets import count_calls
from turnwright_store.sql.rules import list_constraints
from turnwright_store.sql.runs import RunRow, bump_revision, find_run, get_run, load_runs, write_run
from turnwright_store.sql.views import EntryRow, Wanted, all_entry_rows

RECENT_TURNS_MAX: Final = 32
"""Ended turns that a claim returns, for detecting strikes and cycles."""

RECORDS_BYTES_MAX: Final = 4 * 1024 * 1024
"""Total content of the records that a claim returns, in bytes; later records come without content."""

CONSTRAINTS_MAX: Final = 100
CONSTRAINTS_CHARS_MAX: Final = 4096
"""File constraints that a claim returns: their number, and the length of their patterns together."""

CLAIMS_MAX: Final = 100
"""Maximum number of runs that one call claims."""

LEASES_MAX: Final = 10_000
"""Maximum number of leases that one call renews, and of workspaces of an executor."""

LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 3_600_000
"""Shortest and longest lease, in milliseconds."""

EXTRA_CANDIDATES: Final = 32
"""Additional candidates to read, because other executors may claim the first ones at the same time."""

NO_LEASE_LIVES_MS: Final = -(2**62)
"""A grace after which every lease has certainly expired, in milliseconds."""

EXECUTOR_RETENTION_MS: Final = 30 * 24 * 3600 * 1000
"""How long an executor that has ended is remembered, in milliseconds."""


class Claimant(Struct, frozen=True):
    """Who claims or renews: identity, address, and duration in milliseconds."""

    owner: str
    address: str
    lease_ms: int


def claimant(rules: StoreRules, owner: str, address: str, lease_ms: int) -> Claimant:
    """A validated claimant; 0 ms is the store's setting. Raises InvalidError."""
    check_chars("owner", owner, NAME_CHARS_MAX)
    if not owner:
        raise invalid("owner", "owner is required.")
    check_chars("address", address, ROOT_CHARS_MAX)
    if lease_ms and not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise invalid(
            "lease_duration", f"lease_duration must be {LEASE_MS_MIN} to {LEASE_MS_MAX} milliseconds; it is {lease_ms}."
        )
    return Claimant(owner, address, lease_ms or rules.lease_ms)


# ---- Claiming


def claim_run(tx: Transaction, rules: StoreRules, address: RunRef, who: Claimant) -> ClaimRunResponse:
    """Claim a run, fencing out any earlier owner, and start the next queued loop if none is active.

    Raises LEASE_HELD while another owner's lease or its grace has not expired.
    """
    run = get_run(tx.connection, address.project, address.run)
    free_ms = _free_ms(run, rules.lease_grace_ms)
    if run.lease_owner != who.owner and free_ms > tx.now_ms:
        at = run.lease_address or "it"
        raise fault(
            Reason.LEASE_HELD,
            f"{run.lease_owner} works on {run.run.run}: send the call to {at}, or repeat it later.",
            run=run.run.run,
            owner=run.lease_owner,
            address=run.lease_address,
            expires_in_ms=free_ms - tx.now_ms,
        )
    return _claim(tx, rules, run, who)


def _free_ms(run: RunRow, grace_ms: int) -> int:
    """When anybody may claim the run; 0: now."""
    return run.lease_expires_ms + grace_ms if run.lease_owner else 0


def _claim(tx: Transaction, rules: StoreRules, run: RunRow, who: Claimant) -> ClaimRunResponse:
    epoch, losses = lease_rows.claim(tx.connection, run.id, who.owner, who.address, tx.now_ms + who.lease_ms)
    run = _start_next(tx, rules, with_lease(run, who, epoch, tx.now_ms))
    model = registry.find_model(tx.connection, run.active.settings.model) if run.active else None
    return claim_of(tx, rules, run, who.lease_ms, model, losses)


def with_lease(run: RunRow, who: Claimant, epoch: int, now_ms: int) -> RunRow:
    """The run with a new lease."""
    ends_ms = now_ms + who.lease_ms
    return replace(run, epoch=epoch, lease_owner=who.owner, lease_address=who.address, lease_expires_ms=ends_ms)


def claim_of(
    tx: Transaction, rules: StoreRules, run: RunRow, lease_ms: int, model: Model | None, losses: int = 0
) -> ClaimRunResponse:
    """What the owner of a run gets with its claim. `model`: that of its active loop."""
    loop = run.active
    open_turn = turn_rows.get_turn(tx.connection, run.id, run.turn_open) if run.turn_open else None
    past = min(loop.turns, RECENT_TURNS_MAX) + 1 if loop and run.turn else 0
    turns = turn_rows.recent_turns(tx.connection, run.id, past) if past else []
    of_loop = [turn for turn in turns if loop and turn.loop == loop.sequence]
    before = turns[: len(turns) - len(of_loop)]
    constraints = _few_constraints(tx.connection, run.project_id)
    is_limited = loop is not None and (loop.settings.budget or run.run.settings.budget)
    spent, loop_spent = get_spend(tx.connection, run, loop.sequence) if loop and is_limited else (None, None)
    return ClaimRunResponse(
        epoch=run.epoch,
        lease_ms=lease_ms,
        run=run.run,
        loop=loop,
        model=model,
        open_turn=open_turn,
        records=_records(tx.connection, run),
        recent_turns=of_loop[-RECENT_TURNS_MAX:],
        turn_before=before[-1] if before else None,
        abort_requested=run.abort_requested,
        project_root=run.root,
        workspace_id=run.workspace_id,
        turn_losses=losses,
        turn_calls=count_calls(tx.connection, run.id, run.turn_open) if run.turn_open else 0,
        file_constraints=constraints or (),
        file_constraints_left_out=constraints is None,
        spent=spent,
        loop_spent=loop_spent,
        titled=run.title_call is not None or bool(run.run.settings.title),
        rules=rules_in(tx.connection, rules, run),
    )


def _few_constraints(connection: Connection, project_id: int) -> tuple[FileConstraint, ...] | None:
    found = list_constraints(connection, project_id, "", CONSTRAINTS_MAX + 1)
    is_long = len(found) > CONSTRAINTS_MAX or sum(len(one.pattern) for one in found) > CONSTRAINTS_CHARS_MAX
    return None if is_long else tuple(found)


def _start_next(tx: Transaction, rules: StoreRules, run: RunRow) -> RunRow:
    queued = None if run.loop_active else loop_rows.next_queued(tx.connection, run.id)
    if queued is None:
        return run
    loop, by = queued
    run = bump_revision(tx, run)
    waited = bool(loop.reason)
    if waited:
        # It waited for its workspace, and so did the loops behind it.
        work_rows.set_reason_of_queued(tx.connection, run.id, "", run.revision_run)
    run, loop = begin_loop(run, loop, by)
    loop_rows.write_loop(tx.connection, run.id, loop)
    run = write_run(tx, run)
    if not waited:
        publish(tx, rules, run)
    return run


def _records(connection: Connection, run: RunRow) -> list[Entry]:
    """The records of the open turn in the order of their recording, with as much content as fits."""
    if not run.turn_open:
        return []
    shown = all_entry_rows(connection, run.id, records_prefix(run.turn_open))
    shown.sort(key=lambda one: one.position)
    whole = _fitting(shown)
    bare = load_entries(connection, run, shown[whole:], Wanted(bodies=False))
    return [
        *load_entries(connection, run, shown[:whole], Wanted()),
        *(replace(one, attributes_json="", record=b"") for one in bare),
    ]


def _fitting(shown: Sequence[EntryRow]) -> int:
    """How many of these entries fit into one message with their content."""
    total = 0
    for count, one in enumerate(shown):
        total += one.body_size_bytes + one.attributes_bytes
        if total > RECORDS_BYTES_MAX:
            return count
    return len(shown)


# ---- The queue


def check_workspaces(workspaces: Collection[str]) -> None:
    """Refuse more workspaces, or longer names, than the contract allows."""
    check_count("workspace_ids", len(workspaces), LEASES_MAX)
    for one in workspaces:
        check_chars("workspace_ids", one, NAME_CHARS_MAX)


def list_work(
    connection: Connection,
    rules: StoreRules,
    workspaces: Collection[str],
    size: int,
    *,
    with_held: bool,
) -> list[Run]:
    """Claimable runs, in the order in which they are claimed; `with_held` also those with an owner."""
    check_workspaces(workspaces)
    size = page_size(size)
    grace_ms = NO_LEASE_LIVES_MS if with_held else rules.lease_grace_ms
    waiting = work_rows.list_waiting(connection, workspaces, grace_ms, size)
    found = load_runs(connection, [one.id for one in waiting])
    page, _ = page_of(found, size, lambda row: (row.id,), lambda row: run_bytes(row.run))
    return [row.run for row in page]


def find_work(connection: Connection, rules: StoreRules, workspaces: Collection[str], limit: int) -> list[RunRef]:
    """Candidates for claims, best first, some more than requested."""
    check_workspaces(workspaces)
    check_count("limit", limit, CLAIMS_MAX)
    wanted = (limit or 1) + EXTRA_CANDIDATES
    found = work_rows.list_waiting(connection, workspaces, rules.lease_grace_ms, wanted)
    return [RunRef(one.project, one.run) for one in found]


def claim_work(
    tx: Transaction, rules: StoreRules, candidates: Sequence[RunRef], limit: int, who: Claimant
) -> list[ClaimRunResponse]:
    """Claim the first candidates that are still free, as many as requested and as fit into one message.

    A candidate whose lock is held is being claimed or written at this moment: it is skipped.
    """
    claims: list[ClaimRunResponse] = []
    total = 0
    for run in _free(tx, rules, candidates):
        claims.append(_claim(tx, rules, run, who))
        total += _bytes(claims[-1])
        if len(claims) == (limit or 1) or total > ANSWER_BYTES_MAX // 2:
            break
    return claims


def _free(tx: Transaction, rules: StoreRules, candidates: Sequence[RunRef]) -> Iterator[RunRow]:
    for address in candidates:
        if not tx.try_lock(run_lock(address.project, address.run)):
            continue
        run = find_run(tx.connection, address.project, address.run)
        is_free = run is not None and _free_ms(run, rules.lease_grace_ms) <= tx.now_ms
        if run and is_free and work_rows.has_work(tx.connection, run):
            yield run


def _bytes(claim: ClaimRunResponse) -> int:
    held = sum(len(one.body) + len(one.attributes_json) + len(one.record) for one in claim.records)
    return run_bytes(claim.run) * 2 + held + ROW_BYTES * (len(claim.records) + len(claim.recent_turns))


# ---- Holding


def renew_leases(tx: Transaction, who: Claimant, leases: Sequence[Lease]) -> list[LeaseState]:
    """Extend the leases that the owner still holds; two statements, and no revision changes."""
    if not leases:
        return []
    found = lease_rows.find_held_leases(tx.connection, who.owner, [lease.run for lease in leases])
    held = [found.get((lease.project, lease.run)) for lease in leases]
    current = [
        row if row is not None and row.epoch == lease.epoch else None for lease, row in zip(leases, held, strict=True)
    ]
    ids = sorted({row.id for row in current if row})
    lease_rows.renew(tx.connection, ids, who.address, tx.now_ms + who.lease_ms)
    return [
        LeaseState(held=row is not None, abort_requested=row is not None and row.abort_requested) for row in current
    ]


def register_and_renew(
    tx: Transaction, who: Claimant, workspaces: Collection[str], leases: Sequence[Lease]
) -> list[LeaseState]:
    """Record that an executor is alive and which workspaces it has (none: any); renew its leases."""
    if lease_rows.put_executor(tx.connection, who.owner, who.address, workspaces, tx.now_ms + who.lease_ms):
        lease_rows.drop_executors(tx.connection, tx.now_ms - EXECUTOR_RETENTION_MS)
    return renew_leases(tx, who, leases)


def get_lease(connection: Connection, address: RunRef) -> GetLeaseResponse:
    """The current owner of a run; an expired lease has none."""
    run = get_run(connection, address.project, address.run)
    if not run.lease_owner or run.lease_expires_ms <= lease_rows.read_now(connection):
        return GetLeaseResponse("", "", run.run.status)
    return GetLeaseResponse(run.lease_owner, run.lease_address, run.run.status)


def release_run(tx: Transaction, address: RunRef, epoch: int) -> None:
    """Release a run's lease. Raises LEASE_LOST."""
    run = get_run(tx.connection, address.project, address.run)
    check_fence(run, epoch)
    if run.lease_owner:
        lease_rows.release(tx.connection, run.id)


def release_all(tx: Transaction) -> None:
    """Release every lease: all owners have ended, since executor and store are one process."""
    lease_rows.release_all(tx.connection)


# ---- Unclaimable loops: no living executor has their workspace. Watchers see the reason, and a claim clears it


RUNS_MAX: Final = 50
"""Runs that one round marks at most."""


def find_unclaimable(connection: Connection, wait_ms: int, grace_ms: int) -> list[RunRef]:
    """Some runs whose queued loops have waited this long for a workspace that nobody has."""
    if not lease_rows.has_registered_workspaces(connection):
        return []
    offered = lease_rows.offered_workspaces(connection, grace_ms)
    if offered is None:
        return []
    now_ms = lease_rows.read_now(connection)
    return [RunRef(*one) for one in work_rows.list_unclaimable(connection, offered, now_ms - wait_ms, RUNS_MAX)]


def mark_unclaimable(tx: Transaction, found: list[RunRef], grace_ms: int) -> None:
    """Write the reason to the queued loops of those runs that still wait."""
    offered = lease_rows.offered_workspaces(tx.connection, grace_ms)
    for address in found:
        run = find_run(tx.connection, address.project, address.run)
        if run is None or run.loop_active or offered is None or run.workspace_id in offered:
            continue
        run = bump_revision(tx, run)
        work_rows.set_reason_of_queued(tx.connection, run.id, work_rows.UNAVAILABLE, run.revision_run)
        write_run(tx, run)


def unclaimable_loops(database: Database, wait_ms: int, grace_ms: int) -> Chore:
    """The chore. It checks twice within the time after which a loop is marked."""

    async def step() -> bool:
        found = await database.read(partial(find_unclaimable, wait_ms=wait_ms, grace_ms=grace_ms))
        if found:
            locks = {REGISTRY_LOCK, *(run_lock(one.project, one.run) for one in found)}
            await database.write(partial(mark_unclaimable, found=found, grace_ms=grace_ms), Durability.NORMAL, locks)
        return len(found) == RUNS_MAX

    return Chore("unclaimable_loops", wait_ms / 2000, step)
