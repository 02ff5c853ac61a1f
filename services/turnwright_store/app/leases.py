"""Who works on which run: claims, renewals, releases, and the queue that they are taken from.

A lease is told by an owner, an epoch and an end on the database's clock. Whoever claims gets a new epoch; writes are
checked against the epoch alone, so that an owner that was slow, but was not followed by anybody, loses nothing.
Source: architecture 3 (runs, loops, turns, leases), 11; rows RU109-RU111; C36.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.checks import check_chars, check_count, invalid
from turnwright_core.entries import Entry, Tier
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.auth import Caller
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_core.runs import RUNNING, Model, Run, Turn
from turnwright_store.app.commit_delta import publish
from turnwright_store.app.ledger import bump_revision, check_fence, moved, records_prefix
from turnwright_store.app.read_view import RunRef
from turnwright_store.domain.checks import ROOT_CHARS_MAX, page_size
from turnwright_store.domain.locks import run_lock
from turnwright_store.domain.pages import ANSWER_BYTES_MAX, page_of
from turnwright_store.domain.permissions import check_floor
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.weights import ROW_BYTES, run_bytes
from turnwright_store.ports import Connection, Transaction
from turnwright_store.sql import leases as lease_rows
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql import registry
from turnwright_store.sql import turns as turn_rows
from turnwright_store.sql import work as work_rows
from turnwright_store.sql.packets import count_calls
from turnwright_store.sql.runs import RunRow, find_run, get_run, know_run, load_runs, write_run
from turnwright_store.sql.views import EntryRow, Wanted, list_shown, load_entries

RECENT_TURNS_MAX: Final = 32
"""Ended turns that a claim returns: strikes and cycles are read off them."""

RECORDS_BYTES_MAX: Final = 4 * 1024 * 1024
"""What records that a claim returns hold, in bytes; later records come without theirs."""

CLAIMS_MAX: Final = 100
"""Runs that one call claims at most."""

LEASES_MAX: Final = 10_000
"""Leases that one call renews, and workspaces that an executor names, at most."""

LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 3_600_000
"""Shortest and longest lease, in milliseconds."""

CANDIDATES_MORE: Final = 32
"""Runs that are looked at beyond those wanted: another executor that claims now takes the first ones away."""

NO_LEASE_LIVES_MS: Final = -(2**62)
"""A grace after which every lease has passed long ago, in milliseconds."""

EXECUTOR_KEPT_MS: Final = 30 * 24 * 3600 * 1000
"""How long an executor that has ended is remembered, in milliseconds."""


class Claimant(Struct, frozen=True):
    """Who claims or renews: its identity, where it answers, and for how long in milliseconds."""

    owner: str
    address: str
    lease_ms: int


class Claimed(Struct, frozen=True):
    """What an owner goes on from."""

    epoch: int
    lease_ms: int
    run: RunRow
    model: Model | None
    open_turn: Turn | None
    records: list[Entry]
    recent_turns: list[Turn]
    turn_losses: int
    """Owners of the open turn that ended without giving the run back."""
    turn_calls: int
    """Model calls that the open turn has made, or was about to make."""


def claimant(rules: StoreRules, owner: str, address: str, lease_ms: int) -> Claimant:
    """A claimant within the limits; 0 ms is the store's setting. Raises InvalidError."""
    check_chars("owner", owner, NAME_CHARS_MAX)
    if not owner:
        raise invalid("owner", "owner is required.")
    check_chars("address", address, ROOT_CHARS_MAX)
    if lease_ms and not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise invalid("lease_ms", f"lease_ms must be {LEASE_MS_MIN} to {LEASE_MS_MAX}; it is {lease_ms}.")
    return Claimant(owner, address, lease_ms or rules.lease_ms)


# ---- Claiming


def claim_run(tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, who: Claimant) -> Claimed:
    """Take a run, fencing out whoever held it, and start the next queued loop when none is active.

    Raises LEASE_HELD while another owner's lease lives, or its grace.
    """
    check_floor(caller, Tier.SYSTEM, "ClaimRun")
    run = get_run(tx.connection, address.project, address.run)
    free_ms = _free_ms(run, rules.lease_grace_ms)
    if run.lease_owner != who.owner and free_ms > tx.now_ms:
        raise _held(run, free_ms - tx.now_ms)
    return _claimed(tx, run, who)


def _free_ms(run: RunRow, grace_ms: int) -> int:
    """From when on anybody may claim the run; 0: now."""
    return run.lease_expires_ms + grace_ms if run.lease_owner else 0


def _held(run: RunRow, expires_in_ms: int) -> Exception:
    return fault(
        Reason.LEASE_HELD,
        f"{run.lease_owner} works on {run.run.run}: send the call to {run.lease_address or 'it'}, or repeat it later.",
        run=run.run.run,
        owner=run.lease_owner,
        address=run.lease_address,
        expires_in_ms=expires_in_ms,
    )


def _claimed(tx: Transaction, run: RunRow, who: Claimant) -> Claimed:
    expires_ms = tx.now_ms + who.lease_ms
    epoch, losses = lease_rows.claim(tx.connection, run.id, who.owner, who.address, expires_ms)
    run = replace(run, epoch=epoch, lease_owner=who.owner, lease_address=who.address, lease_expires_ms=expires_ms)
    run = _start_next(tx, run)
    loop = run.active
    open_turn = turn_rows.get_turn(tx.connection, run.id, run.turn_open) if run.turn_open else None
    know_run(tx.connection, run, open_turn)
    return Claimed(
        epoch,
        who.lease_ms,
        run,
        registry.find_model(tx.connection, loop.settings.model) if loop else None,
        open_turn,
        _records(tx.connection, run),
        turn_rows.recent_turns(tx.connection, run.id, loop.sequence, RECENT_TURNS_MAX) if loop else [],
        losses,
        count_calls(tx.connection, run.id, run.turn_open) if run.turn_open else 0,
    )


def _start_next(tx: Transaction, run: RunRow) -> RunRow:
    loop = None if run.loop_active else loop_rows.next_queued(tx.connection, run.id)
    if loop is None:
        return run
    before, run = run.revision_run, bump_revision(tx, moved(run, RUNNING))
    waited = bool(loop.reason)
    if waited:
        # It waited for its workspace, and so did those behind it.
        work_rows.say_of_queued(tx.connection, run.id, "", run.revision_run)
    loop = replace(loop, status=RUNNING, reason="", revision=run.revision_run)
    loop_rows.write_loop(tx.connection, run.id, loop)
    run = replace(
        run, loop_active=loop.sequence, run=replace(run.run, loop=loop, loops_queued=run.run.loops_queued - 1)
    )
    run = write_run(tx.connection, run, run.revision_run, tx.now_ms)
    if not waited:
        publish(tx, before, run)
    return run


def _records(connection: Connection, run: RunRow) -> list[Entry]:
    """The records of the open turn in the order of their recording; what they hold as far as it fits."""
    if not run.turn_open:
        return []
    shown, after = [], ""
    while part := list_shown(connection, run.id, records_prefix(run.turn_open), after, 1000):
        shown += part
        after = part[-1].path
    shown.sort(key=lambda one: one.position)
    whole = _fitting(shown)
    bare = load_entries(connection, run, shown[whole:], Wanted(bodies=False))
    return [
        *load_entries(connection, run, shown[:whole], Wanted()),
        *(replace(one, attributes_json="", record=b"") for one in bare),
    ]


def _fitting(shown: Sequence[EntryRow]) -> int:
    """How many of these entries make one message with what they hold."""
    total = 0
    for count, one in enumerate(shown):
        total += one.body_size_bytes + one.attributes_bytes
        if total > RECORDS_BYTES_MAX:
            return count
    return len(shown)


# ---- The queue


def check_workspaces(workspaces: Collection[str]) -> None:
    """Refuse more workspaces, or longer names, than the contract has."""
    check_count("workspace_ids", len(workspaces), LEASES_MAX)
    for one in workspaces:
        check_chars("workspace_ids", one, NAME_CHARS_MAX)


def list_work(
    connection: Connection,
    rules: StoreRules,
    caller: Caller,
    workspaces: Collection[str],
    size: int,
    *,
    with_held: bool,
) -> list[Run]:
    """Runs that an owner can go on with, in the order in which they are claimed; `with_held` those with one too."""
    check_floor(caller, Tier.SYSTEM, "ListWork")
    check_workspaces(workspaces)
    size = page_size(size)
    grace_ms = NO_LEASE_LIVES_MS if with_held else rules.lease_grace_ms
    waiting = work_rows.list_waiting(connection, workspaces, grace_ms, size)
    found = load_runs(connection, [one.id for one in waiting])
    page, _ = page_of(found, size, lambda row: (row.id,), lambda row: run_bytes(row.run))
    return [row.run for row in page]


def find_work(
    connection: Connection, rules: StoreRules, caller: Caller, workspaces: Collection[str], limit: int
) -> list[RunRef]:
    """Candidates for claims, best first, some more than are wanted."""
    check_floor(caller, Tier.SYSTEM, "ClaimWork")
    check_workspaces(workspaces)
    check_count("limit", limit, CLAIMS_MAX)
    wanted = (limit or 1) + CANDIDATES_MORE
    found = work_rows.list_waiting(connection, workspaces, rules.lease_grace_ms, wanted)
    return [RunRef(one.project, one.run) for one in found]


def claim_work(
    tx: Transaction, rules: StoreRules, candidates: Sequence[RunRef], limit: int, who: Claimant
) -> list[Claimed]:
    """Claim the first of the candidates that are still free, as many as were asked for and as one message holds.

    A candidate whose lock somebody else holds is being claimed or written to at this moment: it is passed over.
    """
    claims: list[Claimed] = []
    total = 0
    for run in _free(tx, rules, candidates):
        claims.append(_claimed(tx, run, who))
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


def _bytes(claimed: Claimed) -> int:
    held = sum(len(one.body) + len(one.attributes_json) + len(one.record) for one in claimed.records)
    return run_bytes(claimed.run.run) * 2 + held + ROW_BYTES * (len(claimed.records) + len(claimed.recent_turns))


# ---- Holding


class Lease(Struct, frozen=True):
    """A run that somebody holds."""

    address: RunRef
    epoch: int


class LeaseState(Struct, frozen=True):
    """How a lease stands after its renewal."""

    held: bool
    abort_requested: bool


def renew_leases(tx: Transaction, who: Claimant, leases: Sequence[Lease]) -> list[LeaseState]:
    """Move the ends of the leases that are still the owner's; two statements, and no scope is raised."""
    if not leases:
        return []
    found = lease_rows.find_held(tx.connection, who.owner, [lease.address.run for lease in leases])
    held = [found.get((lease.address.project, lease.address.run)) for lease in leases]
    kept = [
        row if row is not None and row.epoch == lease.epoch else None for lease, row in zip(leases, held, strict=True)
    ]
    ids = sorted({row.id for row in kept if row})
    lease_rows.renew(tx.connection, ids, who.address, tx.now_ms + who.lease_ms)
    return [LeaseState(row is not None, row is not None and row.abort_requested) for row in kept]


def register_and_renew(
    tx: Transaction, who: Claimant, workspaces: Collection[str], leases: Sequence[Lease]
) -> list[LeaseState]:
    """Keep that an executor lives, and which workspaces it has (none: any); renew its leases."""
    if lease_rows.put_executor(tx.connection, who.owner, who.address, workspaces, tx.now_ms + who.lease_ms):
        lease_rows.drop_executors(tx.connection, tx.now_ms - EXECUTOR_KEPT_MS)
    return renew_leases(tx, who, leases)


class LeaseHolder(Struct, frozen=True):
    """Who holds a run: identity and address, empty for nobody; and how the run stands."""

    owner: str
    address: str
    expires_in_ms: int
    run_status: int


def get_lease(connection: Connection, caller: Caller, address: RunRef) -> LeaseHolder:
    """Who holds a run now; a lease that has passed is nobody's."""
    check_floor(caller, Tier.SYSTEM, "GetLease")
    run = get_run(connection, address.project, address.run)
    left_ms = run.lease_expires_ms - lease_rows.read_now(connection) if run.lease_owner else 0
    if left_ms <= 0:
        return LeaseHolder("", "", 0, run.run.status)
    return LeaseHolder(run.lease_owner, run.lease_address, left_ms, run.run.status)


def release_run(tx: Transaction, caller: Caller, address: RunRef, epoch: int) -> None:
    """Free a run at once. Raises LEASE_LOST."""
    check_floor(caller, Tier.SYSTEM, "ReleaseRun")
    run = get_run(tx.connection, address.project, address.run)
    check_fence(run, epoch)
    if run.lease_owner:
        lease_rows.release(tx.connection, run.id)


def release_all(tx: Transaction) -> None:
    """Free every run: whoever held one has ended, since executor and store are one process."""
    lease_rows.release_all(tx.connection)
