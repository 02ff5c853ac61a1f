"""What clients ask of a run: work, its end, a decision.

Source: architecture 3; rows RU003-RU006, RU035-RU040, RU098-RU111; decisions C20, C36.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from turnwright_core.entries import Cursor, Entry, EntryWrite, SetEntry, State, Tier, to_attributes_json
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.auth import Caller
from turnwright_core.limits import COMMENT_BYTES_MAX, PROMPT_BYTES_MAX
from turnwright_core.runs import QUEUED, Loop, LoopSettings, Mode, Run, RunSettings
from turnwright_store.app.ledger import raised
from turnwright_store.app.reading import Address
from turnwright_store.app.registry import add_run, check_model_exists
from turnwright_store.app.writing import Turning, apply_writes, check_writes
from turnwright_store.domain.basis import Basis
from turnwright_store.domain.checks import RUN_ALIAS, check_bytes, check_name, check_path, invalid
from turnwright_store.domain.permissions import check_floor
from turnwright_store.ports import Transaction
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql import registry
from turnwright_store.sql.loops import settings_json
from turnwright_store.sql.runs import RunRow, find_run, get_run, write_run
from turnwright_store.sql.views import Wanted, find_shown, load_entries

REJECTED_OUTCOME = "rejected:403"
"""Outcome of a record whose proposal was rejected (C20, C26)."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A queued loop."""

    run: Run
    loop: Loop
    created: bool
    cursor: Cursor


def enqueue_loop(
    tx: Transaction,
    basis: Basis,
    caller: Caller,
    address: Address,
    prompt: str,
    settings: LoopSettings,
    run_settings: RunSettings,
) -> Enqueued:
    """Queue a loop, making the run where there is none; settings are settled now, never guessed later."""
    if not prompt:
        raise invalid("prompt", "prompt is required.")
    check_bytes("prompt", prompt, PROMPT_BYTES_MAX)
    if settings.mode is Mode.UNSPECIFIED:
        raise invalid("settings.mode", "settings.mode must be ask or act.")
    owner = registry.get_project(tx.connection, address.project)
    if address.run:
        check_name("run", address.run, RUN_ALIAS)
    found = find_run(tx.connection, address.project, address.run) if address.run else None
    named = replace(run_settings, model=run_settings.model or settings.model)
    before = found or add_run(tx, owner, address.run, named)
    cursor = before.cursor(basis.incarnation)
    model = settings.model or before.run.settings.model
    check_model_exists(tx, model)
    _check_queue(before, basis.loops_queued_max)
    run, loop = _add_loop(tx, before, prompt, replace(settings, model=model))
    run = _write_run_entry(tx, basis, caller, run, loop)
    return Enqueued(run.run, loop, found is None, cursor if found else replace(cursor, run=0))


def _check_queue(run: RunRow, limit: int) -> None:
    if run.run.loops_queued >= limit:
        raise fault(
            Reason.QUEUE_FULL,
            f"{run.run.loops_queued} loops wait in {run.run.run} already: wait until some have ended.",
            queue="loops",
            limit=limit,
        )


def _add_loop(tx: Transaction, run: RunRow, prompt: str, settings: LoopSettings) -> tuple[RunRow, Loop]:
    run = raised(tx, run)
    loop = Loop(run.loops + 1, settings, prompt, QUEUED, create_ms=tx.now_ms, revision=run.revision_run)
    loop_rows.add_loop(tx.connection, run.id, loop)
    shown = run.run.loop if run.loop_active else loop
    run = replace(run, loops=loop.sequence, run=replace(run.run, loop=shown, loops_queued=run.run.loops_queued + 1))
    return write_run(tx.connection, run, run.revision_run, tx.now_ms), loop


def _write_run_entry(tx: Transaction, basis: Basis, caller: Caller, run: RunRow, loop: Loop) -> RunRow:
    """A run begins with `set run://{alias}` (RU003, RU037)."""
    attributes = settings_json(loop.settings, loop=loop.sequence)
    write = EntryWrite(f"run://{run.run.run}", SetEntry(loop.prompt, attributes))
    checked = check_writes(basis, caller, [write])
    return apply_writes(tx, basis, run, checked, caller.principal, Turning(loop=loop.sequence)).run


def request_abort(tx: Transaction, basis: Basis, caller: Caller, address: Address) -> tuple[Run, Cursor]:
    """Mark that the active loop shall end. Nothing happens when none is active (C36)."""
    check_floor(caller, Tier.CLIENT, "RequestAbort")
    run = get_run(tx.connection, address.project, address.run)
    cursor = run.cursor(basis.incarnation)
    if run.loop_active and not run.abort_requested:
        run = raised(tx, replace(run, abort_requested=True))
        run = write_run(tx.connection, run, run.revision_run, tx.now_ms)
    return run.run, cursor


@dataclass(frozen=True, slots=True)
class Decided:
    """A decided proposal."""

    run: Run
    entry: Entry
    cursor: Cursor


def resolve_proposal(
    tx: Transaction, basis: Basis, caller: Caller, address: Address, path: str, *, accept: bool, comment: str
) -> Decided:
    """Record the decision on a pending proposal, once (RU040, C20). Raises NOT_PROPOSED."""
    check_floor(caller, Tier.CLIENT, "ResolveProposal")
    check_path(path)
    check_bytes("comment", comment, COMMENT_BYTES_MAX)
    run = get_run(tx.connection, address.project, address.run)
    cursor = run.cursor(basis.incarnation)
    record = _record(tx, run, path)
    if record.state is not State.PROPOSED:
        state = record.state.name.lower()
        message = f"{path} is {state}, not a pending proposal: it was decided already, or needs no decision."
        raise fault(Reason.NOT_PROPOSED, message, path=path, state=state)
    decision = {"decision": "accept" if accept else "reject", "comment": comment, "principal": caller.principal}
    attributes = _attributes_json({**json.loads(record.attributes_json), "decision": decision})
    if accept:
        change = SetEntry(attributes_json=attributes, state=State.RECORDED)
    else:
        change = SetEntry(comment or "Rejected.", attributes, state=State.FAILED, outcome=REJECTED_OUTCOME)
    # The store itself writes the record, whatever the scheme grants to clients (RU035).
    write = EntryWrite(path, change, Tier.SYSTEM, expected_revision=record.revision)
    run = apply_writes(tx, basis, run, [write], caller.principal).run
    return Decided(run.run, _record(tx, run, path), cursor)


def _record(tx: Transaction, run: RunRow, path: str) -> Entry:
    shown = find_shown(tx.connection, run.id, [path]).get(path)
    if shown is None:
        raise fault(Reason.ENTRY_NOT_FOUND, f"There is no entry {path} in {run.run.run}.", path=path)
    return load_entries(tx.connection, run, [shown], Wanted())[0]


def _attributes_json(attributes: dict[str, object]) -> str:
    """Attributes as text, with escapes where a lone surrogate could not be stored otherwise."""
    text = to_attributes_json(attributes)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(attributes, separators=(",", ":"))
    return text
