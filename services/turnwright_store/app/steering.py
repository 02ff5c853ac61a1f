"""Steering runs by writes: setting `run://{alias}` starts a loop, and a state on a path cancels or decides.

A write without a fence that has the meaning of a use case in app.commands or app.control is passed to it, with all its
checks; the others are written as they are. All of a request happens in one transaction and in order. Source: rows
RU035, RU037-RU040; decision C14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, ValidationError
from msgspec.json import Decoder
from msgspec.structs import asdict, replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Budget, LoopSettings, Mode, RunSettings, State

from turnwright_core.checks import check_count, invalid
from turnwright_core.limits import SPAN_S_MAX
from turnwright_core.packet_values import TurnPacket
from turnwright_core.text import scheme_of
from turnwright_kit.auth import Caller
from turnwright_store.app import commands, control, ledger
from turnwright_store.app.apply_writes import WriteResult
from turnwright_store.app.commit_delta import publish, view_change
from turnwright_store.app.proposals import Resolution, resolve_proposal
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.write_rules import (
    check_attributes,
    check_path,
    check_revision,
    check_writer,
    writer_of,
    written_paths,
)
from turnwright_store.ports import Transaction
from turnwright_store.sql.runs import RunHead, find_run, get_run, get_run_head
from turnwright_store.sql.views import EntryRow, find_entry_rows

_RUN: Final = "run://"
_DECISIONS: Final = (State.RESOLVED, State.FAILED, State.CANCELLED)
"""States that decide a proposal: the first accepts, the others reject."""

_MODES: Final = {"ask": Mode.ASK, "act": Mode.ACT}


class BudgetAttributes(Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of a loop, as attributes give them."""

    turns_max: Annotated[int, Meta(ge=0, lt=2**32)] = 0
    tokens_max: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    cost_usd_max: Annotated[float, Meta(ge=0)] = 0.0
    wall_s_max: Annotated[float, Meta(ge=0, le=SPAN_S_MAX)] = 0.0


class RunAttributes(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a loop that attributes can give."""

    mode: Literal["ask", "act"]
    model: str = ""
    no_repo: bool = False
    no_interaction: bool = False
    no_web: bool = False
    no_proposals: bool = False
    yolo: bool = False
    budget: BudgetAttributes | None = None
    project_instructions: bool | None = None
    summaries: bool | None = None
    synthetic: bool = False


_ATTRIBUTES: Final = Decoder(RunAttributes)


def write_entries(
    tx: Transaction,
    rules: StoreRules,
    caller: Caller,
    address: RunRef,
    epoch: int | None,
    writes: Sequence[EntryWrite],
    run_status: int,
    packet: TurnPacket | None = None,
) -> WriteResult[RunHead]:
    """Write entries as app.ledger does; without a fence, writes that steer the run are recognized."""
    check_count("writes", len(writes), rules.limits.writes_max)
    shown = _steered(tx, address, writes) if epoch is None else {}
    steering = [_steers(write, shown) for write in writes] if epoch is None else []
    if not any(steering) or run_status or packet:
        written = ledger.write_entries(tx, rules, caller, address, epoch, writes, run_status, packet)
        if tx.bumped and not run_status:
            delta = publish(tx, written.run.revision_run - 1, written.run)
            return replace(written, view_change=view_change(rules, delta, tx.returns_view_change))
        return written
    _check_once(writes)
    revisions: list[int] = []
    paths: list[str] = []
    for steers, group in groupby(zip(writes, steering, strict=True), key=lambda pair: pair[1]):
        part = [write for write, _ in group]
        if steers:
            revisions += [_steer(tx, rules, caller, address, write, shown.get(write.path)) for write in part]
            paths += [write.path for write in part]
        else:
            written = ledger.write_entries(tx, rules, caller, address, None, part, 0)
            revisions += written.revisions
            paths += written.paths
    return WriteResult(get_run_head(tx.connection, address.project, address.run), tuple(revisions), tuple(paths))


def _check_once(writes: Sequence[EntryWrite]) -> None:
    """Refuse a path that is written twice: writes between two steering writes are applied separately."""
    counts = Counter(path for write in writes for path in written_paths(write))
    path, count = counts.most_common(1)[0]
    if count > 1:
        raise invalid(
            "path", f"A request that steers a run may write each path only once; {path} appears more than once."
        )


def _steered(tx: Transaction, address: RunRef, writes: Sequence[EntryWrite]) -> dict[str, EntryRow]:
    """The views of the paths that may steer the run; most requests have none."""
    paths = [write.path for write in writes if scheme_of(write.path) == "run" or _decides(write)]
    run = find_run(tx.connection, address.project, address.run) if paths else None
    return find_entry_rows(tx.connection, run.id, list(dict.fromkeys(paths))) if run else {}


def _decides(write: EntryWrite) -> bool:
    return isinstance(write.change, SetEntry) and write.change.state in _DECISIONS


def _steers(write: EntryWrite, shown: dict[str, EntryRow]) -> bool:
    change = write.change
    if not isinstance(change, SetEntry):
        return False
    if scheme_of(write.path) == "run":
        return change.body is not None or change.state is State.CANCELLED
    return _decides(write) and write.path in shown and shown[write.path].state == State.PROPOSED


def _steer(
    tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, write: EntryWrite, shown: EntryRow | None
) -> int:
    """Carry out one steering write; returns the revision of its view, 0 if the view does not change."""
    check_path(write.path)
    check_revision(write.path, write.expected_revision, shown.revision if shown else 0)
    assert isinstance(write.change, SetEntry)
    if scheme_of(write.path) != "run":
        return _decide(tx, rules, caller, address, write.path, write.change)
    check_writer(rules.scheme("run"), writer_of(caller, write.writer), write.path)
    if write.path != f"{_RUN}{address.run}":
        message = f"The run {address.run} is steered by {_RUN}{address.run}; name the other run in the request."
        raise invalid("path", message)
    if write.change.state is State.CANCELLED:
        _check_only(write.change, SetEntry(state=State.CANCELLED))
        control.abort_run(tx, rules, caller, address)
        return 0
    return _enqueue(tx, rules, caller, address, write.change)


def _check_only(change: SetEntry, allowed: SetEntry) -> None:
    if change != allowed:
        raise invalid(
            "set",
            "A write that steers a run must not set anything else: set body and attributes to start a loop, only the "
            "state to cancel one, state and comment to decide a proposal.",
        )


def _enqueue(tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, change: SetEntry) -> int:
    _check_only(change, SetEntry(change.body, change.attributes_json))
    settings = _settings(change.attributes_json or "{}")
    commands.enqueue_loop(tx, rules, caller, address, change.body or "", settings, RunSettings())
    return get_run(tx.connection, address.project, address.run).revision_run


def _settings(text: str) -> LoopSettings:
    """The settings of a loop from attributes. Raises InvalidError."""
    check_attributes(text)
    try:
        given = _ATTRIBUTES.decode(text)
    except ValidationError as error:
        names = ", ".join(RunAttributes.__struct_fields__)
        raise invalid("attributes_json", f"The attributes of a run are {names}: {error}.") from None
    settings = {**asdict(given), "budget": Budget(**asdict(given.budget)) if given.budget else None}
    return LoopSettings(**settings | {"mode": _MODES[given.mode]})


def _decide(tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, path: str, change: SetEntry) -> int:
    _check_only(change, SetEntry(change.body, state=change.state))
    resolution = Resolution(change.state is State.RESOLVED, change.body or "")
    decided = resolve_proposal(tx, rules, caller, address, path, resolution)
    return decided.entry.revision
