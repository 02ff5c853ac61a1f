"""Queueing a loop.

Source: architecture 3; rows RU003-RU006, RU035-RU039, RU098-RU111; decision C36.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Assembly, Cursor, Loop, LoopSettings, Model, Right, Run, RunSettings

from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.runs import QUEUED
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.inheritance import latest_of_user
from turnwright_store.app.leases import Claimant, with_lease
from turnwright_store.app.ledger import begin_loop
from turnwright_store.app.quotas import admit_run
from turnwright_store.app.registry import add_run, run_exists
from turnwright_store.app.waiting_edits import count_waiting
from turnwright_store.domain.checks import (
    RUN_ALIAS,
    check_name,
    check_task,
)
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.settings_patch import follows_run, queued_settings
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.viewers import asker_json, asker_of
from turnwright_store.domain.write_rules import check_writes
from turnwright_store.ports import Transaction
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql import registry
from turnwright_store.sql.runs import WRITE, WRITE_CLAIMED, RunRow, bump_revision, find_run, write_run


class Enqueued(Struct, frozen=True):
    """A queued loop."""

    row: RunRow
    """The run as it is stored: claimed, and with its loop running, if that was asked for."""
    run: Run
    """The run with the loop in its queue."""
    loop: Loop
    model: Model
    created: bool
    cursor: Cursor


def enqueue_loop(
    tx: Transaction,
    rules: StoreRules,
    caller: Caller,
    address: RunRef,
    prompt: str,
    settings: LoopSettings,
    run_settings: RunSettings,
    *,
    is_new: bool = False,
    claimant: Claimant | None = None,
    command_id: str = "",
    asker: str = "",
) -> Enqueued:
    """Queue a loop; creates the run if necessary. Settings and their defaults are resolved now.

    `is_new`: raises RUN_EXISTS for a run that exists. `claimant` claims such a run, and its loop begins. `asker` is
    whom the loop is for, as it is stored, if that is not the caller.
    """
    check_task(prompt, settings)
    rules.check_right(caller, Right.RUN, address.project, "A task")
    if settings.yolo or run_settings.yolo:
        rules.check_right(caller, Right.COMMAND, address.project, "yolo")
    owner = registry.get_project(tx.connection, address.project)
    if address.run:
        check_name("run", address.run, RUN_ALIAS)
    found = find_run(tx.connection, address.project, address.run) if address.run else None
    if found and is_new:
        raise run_exists(address.project, address.run)
    if found:
        _check_settled(found, replace(run_settings, model="") if run_settings.model == settings.model else run_settings)
    named = replace(run_settings, model=run_settings.model or settings.model)
    before = found or add_run(tx, caller, owner, address.run, named)
    cursor = before.cursor(rules.incarnation)
    model = registry.get_model(tx.connection, settings.model or before.run.settings.model)
    if not found and model.alias != named.model:
        registry.get_model(tx.connection, named.model)
    check_queue(tx, before, rules.loops_queued_max)
    of_run = follows_run(settings) or not settings.model
    settings = queued_settings(replace(settings, model=model.alias), model_of_run=of_run)
    settled = _settle(tx, settings, before, owner.project.assembly or rules.assembly)
    by = asker or asker_json(caller)
    admit_run(tx, before, by)
    person = asker_of(by)
    run, loop = _with_loop(tx, before, prompt, settled, command_id, person.name if person else caller.name)
    row, added = begin_loop(with_lease(run, claimant, run.epoch + 1, tx.now_ms), loop, by) if claimant else (run, loop)
    loop_rows.add_loop(tx.connection, run.id, added, by)
    row = write_run(tx, row, WRITE_CLAIMED if claimant else WRITE)
    row = _write_run_entry(tx, rules, caller, row, loop)
    cursor = cursor if found else replace(cursor, run_revision=0)
    return Enqueued(row, run.run if claimant else row.run, loop, model, found is None, cursor)


def _settle(tx: Transaction, settings: LoopSettings, run: RunRow, default: Assembly) -> LoopSettings:
    """What a task leaves open is as in the run's latest loop of a user."""
    latest = latest_of_user(tx.connection, run)
    before = latest.settings if latest else run.asked or replace(settings, assembly=default)
    reads, summarizes = settings.project_instructions, settings.summaries
    return replace(
        settings,
        reasoning=settings.reasoning or before.reasoning,
        # A loop of an earlier release does not say: it was sent packets.
        assembly=settings.assembly or before.assembly or Assembly.PACKET,
        project_instructions=before.project_instructions if reads is None else reads,
        summaries=before.summaries if summarizes is None else summarizes,
    )


def _check_settled(run: RunRow, given: RunSettings) -> None:
    """Refuse settings for a run that exists and has others: they would be ignored (C51)."""
    unset, has = RunSettings(), run.run.settings
    differing = [
        name
        for name in RunSettings.__struct_fields__
        if getattr(given, name) not in (getattr(unset, name), getattr(has, name))
    ]
    if differing:
        names = ", ".join(differing)
        raise invalid(
            "run_settings",
            f"The run {run.run.run} has another {names}: leave it out, or change the run's settings first.",
        )


def check_queue(tx: Transaction, run: RunRow, limit: int) -> None:
    """Refuse one more that would wait. Raises QUEUE_FULL."""
    waiting = run.run.loops_queued
    # Edits wait behind loops only.
    if waiting or run.loop_active:
        waiting += count_waiting(tx.connection, run)
    if waiting >= limit:
        raise fault(
            Reason.QUEUE_FULL,
            f"{waiting} commands already wait in {run.run.run}: cancel some, or wait until some have ended.",
            queue="loops",
            limit=limit,
        )


def _with_loop(
    tx: Transaction, run: RunRow, prompt: str, settings: LoopSettings, command_id: str, by: str
) -> tuple[RunRow, Loop]:
    """The run with one more loop in its queue, and that loop (not stored yet)."""
    run = bump_revision(tx, run)
    loop = Loop(run.loops + 1, settings, prompt, QUEUED, revision=run.revision_run, command_id=command_id, by=by)
    loop = replace(loop, create_ms=tx.now_ms)
    shown = run.run.loop if run.loop_active else loop
    queued = replace(run.run, loop=shown, loops_queued=run.run.loops_queued + 1)
    return replace(run, loops=loop.sequence, run=queued), loop


def _write_run_entry(tx: Transaction, rules: StoreRules, caller: Caller, run: RunRow, loop: Loop) -> RunRow:
    """A run begins with `set run://{alias}` (RU003, RU037)."""
    write = EntryWrite(f"run://{run.run.run}", SetEntry(loop.prompt, loop_rows.shown_attributes(loop)))
    checked = check_writes(rules, caller, [write])
    return apply_writes(tx, rules, run, checked, caller.name, loop=loop.sequence).run
