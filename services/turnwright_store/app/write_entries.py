"""Writing entries of a run, by its owner or from outside.

A write without an epoch that has the meaning of a use case in app.commands, app.control or app.proposals is passed to
it, with all its checks; the others are written as they are. All of a request happens in one transaction and in order.
"""

from __future__ import annotations

from msgspec.structs import replace
from turnwright_values.store import EntryWrite, WriteEntriesRequest, WriteEntriesResponse
from turnwright_values.types import Right, RunSettings

from turnwright_core.checks import check_count, invalid
from turnwright_kit.identity.caller import Caller
from turnwright_kit.identity.policy import check_service
from turnwright_store.app import commands, control
from turnwright_store.app.apply_writes import WriteResult, apply_writes
from turnwright_store.app.commit_delta import publish
from turnwright_store.app.ledger import check_fence, set_status
from turnwright_store.app.loop_rights import check_works
from turnwright_store.app.packets import record_packet
from turnwright_store.app.proposals import Resolution, resolve_proposal
from turnwright_store.app.quotas import count_command
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.steering import (
    AbortLoop,
    DecideProposal,
    StartLoop,
    Steering,
    paths_to_look_at,
    split_by_steering,
)
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.viewers import asker_json
from turnwright_store.domain.write_rules import check_unfenced, check_writes
from turnwright_store.ports import Transaction
from turnwright_store.sql.runs import RunHead, find_run, get_run, get_run_head
from turnwright_store.sql.views import find_entry_rows


def write_entries(
    tx: Transaction, rules: StoreRules, caller: Caller, call: WriteEntriesRequest
) -> WriteEntriesResponse:
    """Write entries, and set the status of the run and its active loop if given."""
    check_count("writes", len(call.writes), rules.limits.writes_max)
    if call.epoch is None and (call.run_status or call.packet):
        raise invalid("epoch", "Changing the status of a run and storing its packet need the epoch of its owner.")
    steps = _steps(tx, rules, caller, call) if call.epoch is None else []
    written = [
        _write(tx, rules, caller, call, step) if isinstance(step, list) else _steer(tx, rules, caller, call, step)
        for step in steps or [list(call.writes)]
    ]
    run = written[-1].run
    # What steers a run changes more of it than entries.
    change = None if steps or call.run_status else publish(tx, rules, run, wanted=call.view_filter)
    return WriteEntriesResponse(
        [revision for one in written for revision in one.revisions],
        [path for one in written for path in one.paths],
        run.cursor(rules.incarnation),
        change,
    )


def _steps(
    tx: Transaction, rules: StoreRules, caller: Caller, call: WriteEntriesRequest
) -> list[Steering | list[EntryWrite]]:
    """The writes in their order, apart where they steer the run; empty if none does."""
    paths = paths_to_look_at(call.writes)
    run = find_run(tx.connection, call.project, call.run) if paths else None
    shown = find_entry_rows(tx.connection, run.id, paths) if run else {}
    known = {path: (row.state, row.revision) for path, row in shown.items()}
    return split_by_steering(rules, caller, call.run, call.writes, known) if paths else []


def _write(
    tx: Transaction, rules: StoreRules, caller: Caller, call: WriteEntriesRequest, writes: list[EntryWrite]
) -> WriteResult[RunHead]:
    if call.epoch is not None:
        check_service(caller, "A write with the fencing token of a run's owner")
    checked = check_writes(rules, caller, writes)
    run = get_run_head(tx.connection, call.project, call.run)
    if call.epoch is None:
        check_unfenced(checked, run.turn_open)
    else:
        check_fence(run, call.epoch)
    if call.packet is not None:
        check_works(rules, run)
        record_packet(tx, run, call.packet)
    if caller.is_answered_for:
        # The record of what a client has called.
        count_command(tx, run, asker_json(caller))
    written = apply_writes(tx, rules, run, checked, caller.name)
    if not call.run_status:
        return written
    return replace(written, run=set_status(tx, get_run(tx.connection, call.project, call.run), call.run_status))


def _steer(
    tx: Transaction, rules: StoreRules, caller: Caller, call: WriteEntriesRequest, step: Steering
) -> WriteResult[RunHead]:
    """Carry out one steering write; its revision is that of its view, 0 if the view does not change."""
    address = RunRef(call.project, call.run)
    revision = 0
    match step:
        case StartLoop(prompt=prompt, settings=settings):
            row = commands.enqueue_loop(tx, rules, caller, address, prompt, settings, RunSettings()).row
            revision = row.revision_run
        case DecideProposal(path=path, accept=accept, comment=comment):
            rules.check_right(caller, Right.DECIDE, call.project, "A decision")
            decided = resolve_proposal(tx, rules, caller, address, path, Resolution(accept, comment))
            revision = decided.entry.revision
        case AbortLoop():
            rules.check_right(caller, Right.RUN, call.project, "An abort")
            control.abort_run(tx, rules, address)
    return WriteResult(get_run_head(tx.connection, call.project, call.run), (revision,), (step.path,))
