"""What becomes of agents: their ends and proposals are told to the runs above, and who waits for them is woken.

Theory of operation. What is due follows from the rows of both runs at any moment, so it does not matter how an agent's
loop has ended, nor how often this is tried: a step that is repeated finds nothing to do. An executor asks for it when a
loop of an agent ends or waits; the chore finds what nobody has asked for. An agent whose loop above has ended is
aborted, because nobody could use its answer any more. Source: docs/adr/0083.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.store import Durability, EntryWrite, SetEntry
from turnwright_values.types import Agent, DecisionKind, Entry, State, Tier, Visibility

from turnwright_core.decisions import Decision
from turnwright_core.events import RunEvent
from turnwright_core.plans.plan import MAIN, plan_path
from turnwright_core.runs import LOOP_OPEN, QUEUED
from turnwright_core.session import Wait
from turnwright_core.value_methods import to_attributes_json
from turnwright_core.wire.command_records import wait_in, with_decision
from turnwright_store.app.agents import STORE, agent_now
from turnwright_store.app.apply_writes import apply_writes
from turnwright_store.app.maintenance import ROWS_MAX, Chore, process_row
from turnwright_store.app.retention import mark_removed
from turnwright_store.app.run_events import write_event
from turnwright_store.app.waiting_edits import cancel_loop
from turnwright_store.domain.events import agent_ended, agent_proposes
from turnwright_store.domain.locks import project_lock, run_lock
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import agents as rows
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql.agents import FIRST_LOOP, AgentRow, DueAgent
from turnwright_store.sql.contents import find_entry
from turnwright_store.sql.runs import RunRow, bump_revision, get_run, get_run_head, load_runs, write_run

LOOK_EVERY_S: Final = 1.0
"""Seconds between two looks for what no executor has asked for."""

ROUNDS_MAX: Final = 8
"""Looks at one run: the end of an agent's agent may be the end of the agent, and so on."""


async def settle_agents(database: Database, rules_now: Callable[[], StoreRules], project: str, run: str) -> list[str]:
    """Do what is due for a run and its agents; returns the runs that somebody can go on with. Raises RUN_NOT_FOUND."""
    head = await database.read(partial(get_run_head, project=project, alias=run))
    woken: list[str] = []
    for _ in range(ROUNDS_MAX):
        found = await database.read(partial(_due, run_id=head.id))
        for one, above in found:
            woken += await _settle(database, rules_now, one, above)
        if not found:
            break
        # The agent has ended; what is above it may be one, too.
    return list(dict.fromkeys(woken))


def agent_ends(database: Database, rules_now: Callable[[], StoreRules]) -> Chore:
    """The chore that does what nobody has asked for."""

    async def step() -> bool:
        if not await database.read(rows.has_open_agents):
            return False
        found = await database.read(_due)
        for one, above in found:
            settling = _settle(database, rules_now, one, above)
            await process_row(settling, "agents", project=one.project, run=one.run, item=[one.agent])
        return len(found) == ROWS_MAX

    return Chore("agents", LOOK_EVERY_S, step)


def _due(connection: Connection, run_id: int | None = None) -> list[tuple[DueAgent, list[str]]]:
    """Agents for which something is due, each with the aliases of all runs above."""
    found = rows.list_due(connection, ROWS_MAX, run_id)
    return [(one, _aliases_above(connection, one)) for one in found]


def _aliases_above(connection: Connection, one: DueAgent) -> list[str]:
    above = rows.runs_above(connection, one.run_id)
    return [one.run, *(run.alias for run in load_runs(connection, above))]


async def _settle(
    database: Database, rules_now: Callable[[], StoreRules], one: DueAgent, above: Iterable[str]
) -> list[str]:
    locks = {run_lock(one.project, alias) for alias in (*above, one.agent)}
    work = partial(settle_agent, rules=rules_now(), row_id=one.id)
    return await database.write(work, Durability.FULL, locks | {project_lock(one.project)})


def settle_agent(tx: Transaction, rules: StoreRules, row_id: int) -> list[str]:
    """Do what is due for one agent; returns the aliases of runs that can go on with it."""
    row = rows.find_agent(tx.connection, row_id)
    if row is None or row.settled:
        return []
    above = next(iter(load_runs(tx.connection, [row.run_id])), None)
    agent = next(iter(load_runs(tx.connection, [row.agent_id])), None)
    is_wanted = above is not None and above.loop_active == row.loop and not above.abort_requested
    loop = loop_rows.find_loop(tx.connection, row.agent_id, FIRST_LOOP) if agent else None
    if agent and loop and loop.status in LOOP_OPEN:
        if not is_wanted:
            return _abort(tx, agent, loop.status)
        if above:
            _announce(tx, rules, row, agent)
        return []
    if agent and rows.count_open(tx.connection, agent.id):
        return []
    if not row.end_ms:
        row = _end(tx, rules, row, agent, above if is_wanted else None)
    if above is None:
        return _follow(tx, row, agent)
    woken = _wake(tx, rules, row, get_run(tx.connection, above.project, above.alias)) if is_wanted else []
    if woken is not None:
        rows.write_agent(tx.connection, replace(row, settled=True))
    return woken or []


def _follow(tx: Transaction, row: AgentRow, agent: RunRow | None) -> list[str]:
    """The run that started the agent is removed, and so is the agent's, unless somebody else goes on with it."""
    if agent and (agent.loop_active or agent.run.loops_queued):
        return []
    if agent:
        mark_removed(tx, agent)
    rows.remove_agent(tx.connection, row.id)
    return []


def _abort(tx: Transaction, agent: RunRow, status: int) -> list[str]:
    """Have the agent's loop end: its owner sees that, or whoever claims it."""
    if status == QUEUED:
        cancel_loop(tx, agent, FIRST_LOOP)
        return []
    if agent.loop_active != FIRST_LOOP or agent.abort_requested:
        return []
    write_run(tx, bump_revision(tx, replace(agent, abort_requested=True)))
    return [agent.alias]


def _announce(tx: Transaction, rules: StoreRules, row: AgentRow, agent: RunRow) -> None:
    """Tell the runs above of proposals that they have not been told of."""
    new = rows.proposals_after(tx.connection, agent.id, row.announced)
    above = load_runs(tx.connection, rows.runs_above(tx.connection, agent.id))
    for _, path in new:
        record = find_entry(tx.connection, agent, path)
        if record and _is_for_people(record):
            _report(tx, rules, above, agent_proposes(row.name, agent.alias, path))
    if new:
        rows.write_agent(tx.connection, replace(row, announced=new[-1][0]))


def _report(tx: Transaction, rules: StoreRules, runs: Iterable[RunRow], event: RunEvent) -> None:
    for run in runs:
        write_event(tx, rules, run, STORE, event)


def _is_for_people(record: Entry) -> bool:
    return wait_in(record.state, CommandRecord.FromString(record.record)) in (Wait.APPROVAL, Wait.ANSWER)


def _end(tx: Transaction, rules: StoreRules, row: AgentRow, run: RunRow | None, above: RunRow | None) -> AgentRow:
    """The agent has ended: what it has spent is known for good, and what it has not is given back by that."""
    agent = agent_now(tx.connection, row, run)
    row = replace(row, spent=agent.spent, status=agent.status, end_ms=tx.now_ms)
    rows.write_agent(tx.connection, row)
    if above:
        writes = [_answer(agent, above.turn)]
        if plan := find_entry(tx.connection, run, plan_path(MAIN)) if run else None:
            change = SetEntry(plan.body, visibility=Visibility.ARCHIVED, state=State.RESOLVED)
            writes.append(EntryWrite(f"agent://{row.name}/plan", change, Tier.SYSTEM, turn=above.turn))
        above = apply_writes(tx, rules, above, writes, STORE, is_unbounded=True).run
        write_event(tx, rules, above, STORE, agent_ended(agent))
    return row


def _answer(agent: Agent, turn: int) -> EntryWrite:
    spent = agent.spent
    attributes = {
        "run": agent.run,
        "status": agent.status,
        "reason": agent.reason,
        "turns": spent.turns,
        "tokens": spent.tokens,
        "cost_usd": spent.cost_usd,
        "turns_without_cost": spent.turns_without_cost,
    }
    change = SetEntry(
        agent.summary, to_attributes_json(attributes), visibility=Visibility.ARCHIVED, state=State.RESOLVED
    )
    return EntryWrite(f"agent://{agent.name}", change, Tier.SYSTEM, turn=turn)


def _wake(tx: Transaction, rules: StoreRules, row: AgentRow, above: RunRow) -> list[str] | None:
    """Wake the command that waits for the agent, if that may go on; None: it has yet to say that it waits."""
    if not row.waiter:
        return []
    record = find_entry(tx.connection, above, row.waiter)
    if record is None or record.state.is_settled:
        return []
    message = CommandRecord.FromString(record.record)
    if record.state is not State.PROPOSED or not message.proposed.effect.HasField("agents"):
        return None
    effect = message.proposed.effect.agents
    waited = [one for one in rows.list_agents(tx.connection, above.id) if one.name in effect.names]
    ended = [bool(one.end_ms) for one in waited]
    if not (any(ended) if effect.any else all(ended)):
        return []
    after = with_decision(record.record, Decision(DecisionKind.ACCEPTED, "", STORE, tx.now_ms))
    write = EntryWrite(record.path, SetEntry(state=State.RECORDED, record=after), Tier.SYSTEM, record.revision)
    apply_writes(tx, rules, above, [write], STORE, is_unbounded=True)
    return [above.alias]
