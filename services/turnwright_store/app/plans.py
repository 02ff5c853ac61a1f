"""Plans: set, updated, removed, and read in any version.

Theory of operation. A plan is an ordinary entry of its run, so views, forks, the feed and history just work.
`plan://{id}` is its latest version; each delta is a separate entry below, `plan://{id}/v{n}/{k}`, so that a delta
rewrites nothing. A version that is replaced or removed is kept as the archived entry `plan://{id}/v{n}`, and its deltas
are archived: all versions stay in the view, where a fork finds them too.

Source: architecture 9; rows RP01-RP04, RP07, RP08; decision C46.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.store import EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import Cursor, Entry, PlanDelta, PlanItem, PlanKind, Tier, Visibility

from turnwright_core.checks import check_bytes, check_chars, check_count, invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.events import RunEvent, event_write
from turnwright_core.limits import (
    NAME_CHARS_MAX,
    PATH_CHARS_MAX,
    PLAN_BODY_BYTES_MAX,
    PLAN_DELTA_BYTES_MAX,
    PLAN_DELTAS_BYTES_MAX,
    PLAN_DELTAS_MAX,
    PLANS_BYTES_MAX,
    PLANS_MAX,
)
from turnwright_core.models import window_of
from turnwright_core.plans.items import items_of
from turnwright_core.plans.plan import PLAN_ID, Plan, delta_path, part_of, plan_path, version_path
from turnwright_core.text import tokens_of
from turnwright_core.value_methods import to_attributes_json
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.ledger import check_fence
from turnwright_store.app.run_events import turn_of_cause
from turnwright_store.domain import events
from turnwright_store.domain.checks import check_name, page_size
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.pages import decode_page_token, page_of
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.write_rules import check_writes
from turnwright_store.ports import Transaction
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.plans import current_plans
from turnwright_store.sql.registry import find_model
from turnwright_store.sql.runs import RunHead, get_run, get_run_head
from turnwright_store.sql.views import EntryRow, Wanted, all_entry_rows, find_entry_rows

_MODE: Final = re.compile(rf"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{{0,{NAME_CHARS_MAX}}}")

_ALWAYS_TOKENS: Final = 512
"""Plans of this size fit any window: the instructions alone are longer."""

_CURE: Final = "Set one of them again, shorter, or remove one."


class PlanChange(Struct, frozen=True):
    """The writer of a run's plans."""

    caller: Caller
    address: RunRef
    writer: Tier = Tier.CLIENT
    epoch: int | None = None
    """Epoch of the owner's fencing token; None: a write from outside the loop."""
    window: int = 0
    """Tokens of a packet; 0: by the settings of the run."""


PlanMark = tuple[int, ...]
"""Changes with a plan: its position, another one if it was deleted meanwhile, and what it and its deltas contain."""


class _LoadedPlan(Struct, frozen=True):
    """A version of a plan as a run sees it, with its deltas, oldest first."""

    head: Entry
    deltas: list[Entry]

    @property
    def version(self) -> int:
        return int(self.head.attributes["version"])

    @property
    def kind(self) -> PlanKind:
        return PlanKind[self.head.attributes["kind"].upper()]

    @property
    def size_bytes(self) -> int:
        return self.head.body_size_bytes + self.deltas_bytes

    @property
    def deltas_bytes(self) -> int:
        return sum(delta.body_size_bytes for delta in self.deltas)


class _Plans(Struct, frozen=True):
    """The current plans of a run: the one that is changed, and the rows of the others and of all."""

    seen: _LoadedPlan | None
    others: list[EntryRow]
    rows: list[EntryRow]


def _sequence_of(delta: Entry) -> int:
    return part_of(delta.path).sequence


def _plans(connection: Connection, run: RunHead, plan_id: str) -> _Plans:
    rows, loaded = current_plans(connection, run.id, plan_path(plan_id))
    own = [row for row in rows if row.content in loaded]
    others = [row for row in rows if row.content not in loaded]
    return _Plans(_of_entries(load_entries(connection, run, own, Wanted(), loaded)), others, rows)


def _of_entries(entries: Sequence[Entry], version: int = 0) -> _LoadedPlan | None:
    """A plan with its deltas; `version`: the one to choose if there are several."""
    heads = [one for one in entries if not _sequence_of(one)]
    head = next((one for one in heads if version in (0, one.attributes["version"])), None)
    return _LoadedPlan(head, sorted(filter(_sequence_of, entries), key=_sequence_of)) if head else None


def _find(connection: Connection, run: RunHead, plan_id: str, version: int) -> _LoadedPlan | None:
    """The latest version of a plan, or the given one. Other versions are not read."""
    if not version:
        return _plans(connection, run, plan_id).seen
    kept = version_path(plan_id, version)
    heads = find_entry_rows(connection, run.id, [plan_path(plan_id), kept])
    found = [*heads.values(), *all_entry_rows(connection, run.id, f"{kept}/")]
    return _of_entries(load_entries(connection, run, found, Wanted()), version)


def _refuse_missing(plan_id: str, version: int = 0) -> NoReturn:
    message = (
        f"The plan {plan_id!r} has no version {version} in this run."
        if version
        else f"There is no plan {plan_id!r} in this run: set it first."
    )
    raise fault(Reason.ENTRY_NOT_FOUND, message, path=plan_path(plan_id))


def check_plan(plan: Plan) -> tuple[PlanItem, ...]:
    """Validate the size and format of a plan, before anything is read; returns its items. Raises InvalidError."""
    check_name("plan_id", plan.plan_id, PLAN_ID)
    check_bytes("body", plan.body, PLAN_BODY_BYTES_MAX)
    check_chars("mode", plan.mode, NAME_CHARS_MAX)
    if not _MODE.fullmatch(plan.mode):
        raise invalid("mode", f"mode must be one word; it is {plan.mode!r}.")
    if plan.kind is PlanKind.FILE and not 0 < len(plan.body) <= PATH_CHARS_MAX:
        raise invalid("body", f"The body of a file plan must be the file's path, 1 to {PATH_CHARS_MAX} characters.")
    return items_of(plan.body) if plan.kind is PlanKind.ITEMS else ()


def _check_evidence(connection: Connection, run: RunHead, items: Sequence[PlanItem]) -> None:
    """Refuse items with evidence paths that the run does not see."""
    shown = find_entry_rows(connection, run.id, [*{path: None for item in items for path in item.evidence_paths}])
    for at, item in enumerate(items):
        for number, path in enumerate(item.evidence_paths):
            if path not in shown:
                field = f"items[{at}].evidence_paths[{number}]"
                raise invalid(field, f"{field}: there is no entry {path!r} in this run's view.")


def set_plan(tx: Transaction, rules: StoreRules, by: PlanChange, plan: Plan) -> tuple[Plan, Cursor]:
    """Create or replace a plan; a replaced plan begins a version without deltas. Raises LIMIT_EXCEEDED."""
    items = check_plan(plan)
    run = _run_for(tx, by)
    _check_evidence(tx.connection, run, items)
    found = _plans(tx.connection, run, plan.plan_id)
    seen = found.seen
    check_count("plans", sum(not part_of(row.path).version for row in found.others) + 1, PLANS_MAX)
    # A shorter plan is never refused, so that a run over the limit can be brought below it plan by plan.
    is_less = seen is not None and len(plan.body.encode()) <= seen.size_bytes
    if not is_less:
        _check_size(tx, rules, run, plan.body, found.others, by.window)
    plan = replace(plan, version=_next_version(tx.connection, run, plan.plan_id, seen), deltas=(), update_ms=tx.now_ms)
    write = EntryWrite(
        plan_path(plan.plan_id),
        SetEntry(plan.body, _attributes(plan.kind, plan.version, plan.mode), visibility=Visibility.VISIBLE),
        by.writer,
    )
    writes = [*(_archive_writes(plan.plan_id, seen, by.writer) if seen else ()), write]
    return plan, _apply(tx, rules, by, run, writes, events.plan_set(plan.plan_id, plan.version, plan.kind))


def _attributes(kind: PlanKind, version: int, mode: str) -> str:
    return to_attributes_json({"kind": kind.name.lower(), "version": version, "mode": mode})


def _run_for(tx: Transaction, by: PlanChange) -> RunHead:
    run = get_run_head(tx.connection, by.address.project, by.address.run)
    if by.epoch is not None:
        check_fence(run, by.epoch)
    return run


def _apply(
    tx: Transaction, rules: StoreRules, by: PlanChange, run: RunHead, writes: Sequence[EntryWrite], event: RunEvent
) -> Cursor:
    checked = check_writes(rules, by.caller, writes, of_plans=True)
    event_entry = event_write(turn_of_cause(run, is_owners=by.epoch is not None), event)
    return apply_writes(tx, rules, run, [*checked, event_entry], by.caller.name).run.cursor(rules.incarnation)


def _next_version(connection: Connection, run: RunHead, plan_id: str, seen: _LoadedPlan | None) -> int:
    """One more than any version that this run has ever seen; they are all kept."""
    if seen:
        return seen.version + 1
    kept = all_entry_rows(connection, run.id, f"{plan_path(plan_id)}/")
    return max((part_of(row.path).version for row in kept), default=0) + 1


def _archive_writes(plan_id: str, seen: _LoadedPlan, writer: Tier) -> list[EntryWrite]:
    """The writes that archive the latest version and its deltas."""
    kept = SetEntry(seen.head.body, seen.head.attributes_json, visibility=Visibility.ARCHIVED)
    archived = SetEntry(visibility=Visibility.ARCHIVED)
    return [
        EntryWrite(version_path(plan_id, seen.version), kept, writer),
        *(EntryWrite(one.path, archived, writer) for one in seen.deltas),
    ]


def update_plan(tx: Transaction, rules: StoreRules, by: PlanChange, plan_id: str, text: str) -> tuple[Plan, Cursor]:
    """Append a delta to a plan. Raises ENTRY_NOT_FOUND, LIMIT_EXCEEDED."""
    run = _run_for(tx, by)
    check_name("plan_id", plan_id, PLAN_ID)
    check_bytes("delta", text, PLAN_DELTA_BYTES_MAX)
    size = len(text.encode())
    if not size:
        raise invalid("delta", "A delta needs some text.")
    found = _plans(tx.connection, run, plan_id)
    seen = found.seen or _refuse_missing(plan_id)
    _check_deltas(plan_id, seen, size)
    _check_size(tx, rules, run, text, found.rows, by.window)
    sequence = _sequence_of(seen.deltas[-1]) + 1 if seen.deltas else 1
    attributes = to_attributes_json({"version": seen.version, "sequence": sequence})
    write = EntryWrite(
        delta_path(plan_id, seen.version, sequence),
        SetEntry(text, attributes, visibility=Visibility.VISIBLE),
        by.writer,
    )
    cursor = _apply(tx, rules, by, run, [write], events.plan_delta(plan_id, seen.version, sequence))
    plan = _plan(plan_id, seen)
    return replace(plan, deltas=(*plan.deltas, PlanDelta(sequence, text, tx.now_ms))), cursor


def _check_deltas(plan_id: str, seen: _LoadedPlan, size: int) -> None:
    if len(seen.deltas) >= PLAN_DELTAS_MAX:
        raise _plan_full_error(plan_id, PLAN_DELTAS_MAX, len(seen.deltas) + 1, "items")
    total = seen.deltas_bytes + size
    if total > PLAN_DELTAS_BYTES_MAX:
        raise _plan_full_error(plan_id, PLAN_DELTAS_BYTES_MAX, total, "bytes")


def _plan_full_error(plan_id: str, limit: int, actual: int, unit: str) -> Exception:
    message = (
        f"The deltas of the plan {plan_id!r} would have {actual} {unit}; the limit is {limit}. Set the whole plan "
        "again, with its deltas."
    )
    return fault(Reason.LIMIT_EXCEEDED, message, field="deltas", limit=limit, actual=actual, unit=unit)


def delete_plan(tx: Transaction, rules: StoreRules, by: PlanChange, plan_id: str) -> Cursor:
    """Delete a plan from the run's view; its versions can still be read. Raises ENTRY_NOT_FOUND."""
    check_name("plan_id", plan_id, PLAN_ID)
    run = _run_for(tx, by)
    seen = _plans(tx.connection, run, plan_id).seen or _refuse_missing(plan_id)
    remove = EntryWrite(plan_path(plan_id), RemoveEntry(), by.writer)
    writes = [*_archive_writes(plan_id, seen, by.writer), remove]
    return _apply(tx, rules, by, run, writes, events.plan_removed(plan_id, seen.version, seen.kind))


def get_plan(connection: Connection, address: RunRef, plan_id: str, version: int) -> Plan:
    """A plan with its deltas; version 0 is the latest, which must be in the view. Raises ENTRY_NOT_FOUND."""
    check_name("plan_id", plan_id, PLAN_ID)
    run = get_run_head(connection, address.project, address.run)
    return _plan(plan_id, _find(connection, run, plan_id, version) or _refuse_missing(plan_id, version))


def _plan(plan_id: str, seen: _LoadedPlan) -> Plan:
    deltas = tuple(PlanDelta(_sequence_of(one), one.body, one.update_ms) for one in seen.deltas)
    mode = seen.head.attributes["mode"]
    return Plan(plan_id, seen.kind, seen.head.body, seen.version, mode, deltas, seen.head.update_ms)


def list_plans(connection: Connection, address: RunRef, size: int, token: str) -> tuple[list[Plan], str]:
    size = page_size(size)
    (after,) = decode_page_token(token, str) or ("",)
    run = get_run_head(connection, address.project, address.run)
    rows = _rows_by_plan(connection, run)
    plans = (_load(connection, run, plan_id, rows[plan_id]) for plan_id in sorted(rows) if plan_id > str(after))
    return page_of(plans, size, lambda plan: (plan.plan_id,), plan_weight)


def marked_plans(
    connection: Connection, run: RunHead, known: Mapping[str, PlanMark]
) -> tuple[dict[str, PlanMark], list[Plan]]:
    """The marks of all plans, in the order in which they first appeared, and the plans whose marks are not known."""
    rows = _rows_by_plan(connection, run)
    marks = {plan_id: (own[0].position, *(row.content for row in own)) for plan_id, own in rows.items()}
    return marks, [_load(connection, run, one, rows[one]) for one, mark in marks.items() if known.get(one) != mark]


def plans_of(connection: Connection, run: RunHead, paths: Iterable[str]) -> list[Plan]:
    """The plans that have or had an entry at one of these paths, in the order in which they first appeared."""
    ids = {part_of(path).plan_id for path in paths} - {""}
    rows = _rows_by_plan(connection, run) if ids else {}
    return [_load(connection, run, plan_id, own) for plan_id, own in rows.items() if plan_id in ids]


def _rows_by_plan(connection: Connection, run: RunHead) -> dict[str, list[EntryRow]]:
    """The rows of each plan, in the order in which the plans first appeared: its own, and then its deltas."""
    rows: defaultdict[str, list[EntryRow]] = defaultdict(list)
    for row in sorted(current_plans(connection, run.id)[0], key=lambda row: part_of(row.path).sequence):
        rows[part_of(row.path).plan_id].append(row)
    return dict(sorted(rows.items(), key=lambda each: each[1][0].position))


def _load(connection: Connection, run: RunHead, plan_id: str, rows: Sequence[EntryRow]) -> Plan:
    loaded = _of_entries(load_entries(connection, run, rows, Wanted()))
    assert loaded is not None, "deltas are archived with their plan"
    return _plan(plan_id, loaded)


def plan_weight(plan: Plan) -> int:
    # A plan of items is sent as its text and as its items.
    times = 2 if plan.kind is PlanKind.ITEMS else 1
    return times * len(plan.body.encode()) + sum(64 + len(delta.text.encode()) for delta in plan.deltas) + 512


# ---- Size: plans are never summarized, so one that no packet could hold is refused when it is set (C46)


def _check_size(
    tx: Transaction, rules: StoreRules, run: RunHead, text: str, kept: Sequence[EntryRow], window: int
) -> None:
    """Refuse a text if all plans of the run together become too long: each packet contains all of them.

    `kept` are the others, `window` the tokens of a packet (0: by the settings of the run). Raises LIMIT_EXCEEDED.
    """
    size_bytes = sum(row.body_size_bytes for row in kept) + len(text.encode())
    if size_bytes > PLANS_BYTES_MAX:
        raise _over_limit(PLANS_BYTES_MAX, size_bytes, "bytes", f"the limit is {PLANS_BYTES_MAX}")
    # A code point has at least one byte, so this is an upper bound.
    most = tokens_of(size_bytes, rules.token_divisor)
    if most <= _ALWAYS_TOKENS:
        return
    window = window or context_window(tx.connection, run)
    if window and most >= window:
        others = sum(len(entry.body) for entry in load_entries(tx.connection, run, kept, Wanted()))
        tokens = tokens_of(others + len(text), rules.token_divisor)
        if tokens >= window:
            raise _over_limit(window, tokens, "tokens", f"a packet of this run has {window} for everything")


def context_window(connection: Connection, run: RunHead) -> int:
    """The context window of the run's model, or the run's own limit if that is smaller; 0: unknown."""
    seen = get_run(connection, run.project, run.alias)
    model = find_model(connection, seen.active.settings.model if seen.active else seen.run.settings.model)
    known = (seen.run.settings.context_limit or 0, window_of(model) if model else 0)
    return min(filter(None, known), default=0)


def _over_limit(limit: int, actual: int, unit: str, allowed: str) -> Exception:
    message = f"The plans of this run would have {actual} {unit} together; {allowed}. {_CURE}"
    return fault(Reason.LIMIT_EXCEEDED, message, field="plans", limit=limit, actual=actual, unit=unit)
