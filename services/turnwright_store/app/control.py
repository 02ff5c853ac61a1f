"""Control of a run: its alias, its settings, injected messages, the end of its loop, its spend.

Source: rows RU098, RU230, RU232, RU240; decisions C13, C31, C36.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.store import EntryWrite, SetEntry, TitleCall
from turnwright_values.types import (
    Cursor,
    Loop,
    Model,
    Right,
    Run,
    RunSettingsPatch,
    Spend,
    State,
    Tier,
    TurnResult,
    Visibility,
)

from turnwright_core.chat.timeline import INJECT_TOOL
from turnwright_core.checks import check_bytes, check_words, invalid, transition_forbidden
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import COMMENT_BYTES_MAX, NAME_CHARS_MAX
from turnwright_core.titles import check_title
from turnwright_core.value_methods import to_attributes_json
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.proposals import question_error, waiting_questions
from turnwright_store.app.registry import check_alias_free
from turnwright_store.app.run_events import free_path
from turnwright_store.domain.checks import RUN_ALIAS, check_name, check_run_settings
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.settings_patch import changed_of_loop, changed_settings
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.sql import control as rows
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql import schedules as schedule_rows
from turnwright_store.sql.agents import list_agents, rename_origin, with_agents
from turnwright_store.sql.control import add_name_change
from turnwright_store.sql.registry import find_model, get_model
from turnwright_store.sql.runs import RunRow, bump_revision, get_run, write_run
from turnwright_store.sql.views import list_entry_rows


def rename_run(tx: Transaction, address: RunRef, alias: str) -> Run:
    """Change the alias of a run. Raises RUN_NOT_FOUND, RUN_EXISTS, TRANSITION_FORBIDDEN.

    A run with an active owner keeps its alias, because the owner addresses the ledger by it.
    """
    check_name("new_run", alias, RUN_ALIAS)
    run = get_run(tx.connection, address.project, address.run)
    if alias == address.run:
        return run.run
    if run.loop_active or run.run.loops_queued:
        message = f"{address.run} has a loop that has not ended: abort it, or wait until it has, and rename it then."
        raise transition_forbidden("run", run.run.status, "renamed", message)
    check_alias_free(tx.connection, address.project, alias)
    if rows.family_had_alias(tx.connection, run, alias):
        message = f"A run that {address.run} is related to by forks has had the alias {alias!r}: choose another one."
        raise fault(Reason.RUN_EXISTS, message, project=address.project, run=alias)
    run = bump_revision(tx, run)
    rows.rename(tx.connection, run, alias)
    rename_origin(tx.connection, run.id, alias)
    add_name_change(tx, run.project_id, address.run, alias)
    return write_run(tx, get_run(tx.connection, address.project, alias)).run


def configure_run(tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, patch: RunSettingsPatch) -> Run:
    """Change the settings of a run. Raises MODEL_NOT_FOUND, TRANSITION_FORBIDDEN, INVALID_FIELD, RIGHT_MISSING.

    To turn `yolo` off takes it away from whatever has it in the run: loops that have not ended, and schedules. A model
    goes for the loops in the queue too whose tasks have named none (C62).
    """
    if patch.yolo:
        rules.check_right(caller, Right.COMMAND, address.project, "yolo")
    run = get_run(tx.connection, address.project, address.run)
    settings = changed_settings(patch, run.run.settings)
    if patch.model is not None:
        get_model(tx.connection, patch.model)
    check_run_settings(settings)
    if settings.persona != run.run.settings.persona and run.run.turn:
        message = "The persona is part of the system message and stays after a run's first turn: use a new run."
        raise transition_forbidden("persona", run.run.turn, "changed", message)
    model_loop = run.model_loop if patch.model is None else run.loops
    loops = [loop for loop in _open_loops(tx, run) if changed_of_loop(patch, loop) != loop.settings]
    if patch.yolo is False:
        schedule_rows.withdraw_grants(tx.connection, run.id)
    if (settings, model_loop) == (run.run.settings, run.model_loop) and not loops:
        return run.run
    run = bump_revision(tx, run)
    for loop in loops:
        changed = replace(loop, settings=changed_of_loop(patch, loop), revision=run.revision_run)
        loop_rows.write_settings(tx.connection, run.id, changed)
        if run.run.loop and run.run.loop.sequence == loop.sequence:
            run = replace(run, run=replace(run.run, loop=changed))
    rows.configure(tx.connection, run.id, settings, model_loop)
    run = replace(run, model_loop=model_loop, run=replace(run.run, settings=settings))
    return write_run(tx, run).run


def _open_loops(tx: Transaction, run: RunRow) -> list[Loop]:
    """The loops of a run that have not ended."""
    queued = loop_rows.list_queued(tx.connection, run.id, run.run.loops_queued) if run.run.loops_queued else []
    return [*([run.active] if run.active else []), *queued]


def write_title(tx: Transaction, address: RunRef, call: TitleCall) -> Model | None:
    """Write the model call for the title of a run; None: it is not the run's, so that nobody makes it.

    Raises MODEL_NOT_FOUND.
    """
    check_words("call.call_id", call.call_id, NAME_CHARS_MAX)
    check_title("call.title", call.title)
    run = get_run(tx.connection, address.project, address.run)
    begun = run.title_call
    if (begun is None and run.run.settings.title) or (begun and begun.call_id != call.call_id):
        return None
    model = find_model(tx.connection, call.model) if begun else get_model(tx.connection, call.model)
    if begun:
        call = replace(begun, usage=begun.usage or call.usage, title=begun.title or call.title)
    if call != begun:
        rows.write_title_call(tx.connection, run.id, call)
    if call.title and not (begun and begun.title):
        write_run(tx, bump_revision(tx, run))
    return model


class InjectedMessage(Struct, frozen=True):
    """An injected message; the cursor is that before it."""

    run: Run
    path: str
    cursor: Cursor


def inject_message(
    tx: Transaction, rules: StoreRules, caller: Caller, address: RunRef, message: str
) -> InjectedMessage:
    """Add a message that the model reads in its next turn (RU232, RU251). The run's status does not change.

    While a question waits, it is refused: the next turn begins with the answer. It is written to the latest turn that
    has ended, because the records of an open turn are its owner's.
    """
    if not message.strip():
        raise invalid("message", "The message is empty. Say what the model should read.")
    check_bytes("message", message, COMMENT_BYTES_MAX)
    run = get_run(tx.connection, address.project, address.run)
    if questions := waiting_questions(tx.connection, run):
        raise question_error(run, questions)
    cursor = run.cursor(rules.incarnation)
    ended = run.run.turn - 1 if run.turn_open else run.run.turn
    folder, limit = f"log://turn_{ended}/inject/", rules.loops_queued_max
    if len(list_entry_rows(tx.connection, run.id, folder, "", limit)) == limit:
        raise fault(
            Reason.QUEUE_FULL,
            f"{limit} messages already wait for the next turn of {address.run}: send more once it has begun.",
            queue="messages",
            limit=limit,
        )
    path = free_path(tx, run, f"{folder}message")
    attributes = to_attributes_json({"tool": INJECT_TOOL, "principal": caller.name})
    change = SetEntry(message, attributes, Visibility.VISIBLE, state=State.RESOLVED)
    # Written with the store's own tier: a client may send the model a message, but not write records.
    write = EntryWrite(path, change, Tier.SYSTEM, turn=run.run.turn)
    run = apply_writes(tx, rules, run, [write], caller.name).run
    return InjectedMessage(run.run, path, cursor)


def abort_run(tx: Transaction, rules: StoreRules, address: RunRef, loop: int = 0) -> tuple[Run, Cursor]:
    """Request the end of the active loop; does nothing if there is none, or another one than `loop`; 0: any (C36)."""
    run = get_run(tx.connection, address.project, address.run)
    cursor = run.cursor(rules.incarnation)
    if run.loop_active and loop in (0, run.loop_active) and not run.abort_requested:
        run = bump_revision(tx, replace(run, abort_requested=True))
        run = write_run(tx, run)
    return run.run, cursor


def get_spend(connection: Connection, run: RunRow, loop: int) -> tuple[Spend, Spend]:
    """Spend of a run and one of its loops; 0: the active or latest one."""
    sequence = loop or (run.run.loop.sequence if run.run.loop else 0)
    turns, has_agents = rows.ended_turns(connection, run.id)
    spent, of_loop = _sum(turns), _sum(turn for turn in turns if turn[0] == sequence)
    if has_agents:
        agents = list_agents(connection, run.id)
        spent, of_loop = (
            with_agents(spent, agents),
            with_agents(of_loop, [one for one in agents if one.loop == sequence]),
        )
    if call := run.title_call:
        return _with_title(spent, call), _with_title(of_loop, call) if call.loop == sequence else of_loop
    return spent, of_loop


def _with_title(spent: Spend, call: TitleCall) -> Spend:
    """With the call for a title: as reserved, until its vendor has reported more."""
    if call.usage is None:
        return replace(
            spent,
            tokens=spent.tokens + call.reserved_tokens,
            lost_tokens=spent.lost_tokens + call.reserved_tokens,
            cost_usd=spent.cost_usd + call.reserved_cost_usd,
        )
    usage = call.usage
    cost_usd = call.reserved_cost_usd if usage.cost_usd is None and usage.total_tokens else usage.cost_usd or 0.0
    return replace(
        spent,
        tokens=spent.tokens + usage.total_tokens,
        cost_usd=spent.cost_usd + cost_usd,
        prompt_tokens=spent.prompt_tokens + usage.prompt_tokens,
    )


def _sum(turns: Iterable[tuple[int, TurnResult | None, int]]) -> Spend:
    count = tokens = lost = unknown = work_ms = prompt = 0
    cost = 0.0
    for _, result, lasted_ms in turns:
        count += 1
        if result is None:
            continue
        usage = result.usage
        tokens += usage.total_tokens + result.lost_tokens + result.tool_tokens
        lost += result.lost_tokens
        cost += (usage.cost_usd or 0.0) + result.lost_cost_usd + result.tool_cost_usd
        # A vendor that tells no tokens has them estimated as lost ones, where its reply is a turn's.
        is_aborted = bool(result.error) or result.finish == "aborted"
        has_reply = usage.total_tokens > 0 or (result.lost_tokens > 0 and not is_aborted)
        unknown += has_reply and usage.cost_usd is None
        # Turns that were stored before their work was measured lasted as long as their rows say.
        work_ms += result.work_ms or lasted_ms
        prompt += usage.prompt_tokens
    return Spend(count, tokens, lost, cost, unknown, work_ms / 1000, prompt)
