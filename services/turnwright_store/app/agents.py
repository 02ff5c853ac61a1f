"""Agents: runs that a run starts for a part of its work, with a budget out of its own.

An agent is started once for each command, however often that is repeated: its row has the path of the command's record.
Its budget is that of its loop, so its executor keeps to it as to any other; see `sql.agents` for what it takes of the
run above. Source: docs/adr/0083.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.store import (
    AgentLimits,
    StartAgentRequest,
    StartAgentResponse,
    WaitAgentsRequest,
    WaitAgentsResponse,
)
from turnwright_values.types import (
    Agent,
    Budget,
    Loop,
    LoopSettings,
    Mode,
    RuleLevel,
    RuleVerdict,
    Spend,
)

from turnwright_core.checks import check_chars, check_count, invalid, transition_forbidden
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_core.rules import IntendedEffect, decide, rule_words
from turnwright_core.runs import ABORTED, LOOP_OPEN, RUNNING
from turnwright_core.tools import DELEGATE
from turnwright_core.turn_settings import yolo_of
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.approval_rules import rules_in
from turnwright_store.app.commands import enqueue_loop
from turnwright_store.app.control import get_spend
from turnwright_store.app.ledger import check_fence
from turnwright_store.app.loop_rights import check_works
from turnwright_store.app.run_events import write_event
from turnwright_store.domain.checks import check_budget, check_name
from turnwright_store.domain.events import agent_started
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.sql import agents as rows
from turnwright_store.sql import approval_rules as rule_rows
from turnwright_store.sql import loops as loop_rows
from turnwright_store.sql.agents import FIRST_LOOP, AgentRow
from turnwright_store.sql.runs import RunRow, get_run, is_taken, load_runs

AGENT_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_ALIAS_CHARS: Final = 80
"""Characters of a run's alias that those of its agents begin with."""

NAMES_MAX: Final = 100
"""Most agents, and most tools, that one call names."""

STORE: Final = "store"
"""The name by which the store acts itself."""


def start_agent(tx: Transaction, rules: StoreRules, caller: Caller, asked: StartAgentRequest) -> StartAgentResponse:
    """Start the agent of a command, or find the one that was started for it before.

    Raises LEASE_LOST, RULE_DENIED, RIGHT_MISSING, INVALID_FIELD, LIMIT_EXCEEDED, MODEL_NOT_FOUND, QUOTA_EXCEEDED.
    """
    run = get_run(tx.connection, asked.project, asked.run)
    check_fence(run, asked.epoch)
    if not (row := rows.agent_of_command(tx.connection, run.id, asked.path)):
        row, run = _start(tx, rules, caller, run, asked)
    agent = agents_of(tx.connection, [row])[0]
    spent, of_loop = get_spend(tx.connection, run, run.loop_active)
    return StartAgentResponse(agent, spent, of_loop, run.cursor(rules.incarnation))


def _start(
    tx: Transaction, rules: StoreRules, caller: Caller, run: RunRow, asked: StartAgentRequest
) -> tuple[AgentRow, RunRow]:
    loop = run.active
    if loop is None:
        raise transition_forbidden("run", run.run.status, "delegating", "No loop of the run is active.")
    check_works(rules, run)
    depth = run.run.parent.depth if run.run.parent else 0
    known = rows.list_agents(tx.connection, run.id)
    _check_limits(asked.limits, depth, [one for one in known if one.loop == loop.sequence])
    name = _name(asked.name, known)
    settings = _settings(tx, rules, run, loop, asked)
    of_run = replace(run.run.settings, model=settings.model, budget=None, yolo=False, title=name)
    # Whoever has created the run above has created this one, too.
    creator = replace(caller, name=run.by or caller.name)
    address = RunRef(run.project, _alias(tx.connection, run, name))
    made = enqueue_loop(
        tx, rules, creator, address, asked.prompt, settings, of_run, is_new=True, asker=run.asked_by or ""
    )
    _copy_rules(tx, run, made.row)
    rows.link(tx.connection, made.row.id, run, name, depth + 1)
    new = AgentRow(
        0, run.id, made.row.id, loop.sequence, asked.path, name, asked.background, settings.budget or Budget(),
        None, 0, 0, "" if asked.background else asked.path, 0, False,
    )  # fmt: skip
    rows.add_agent(tx.connection, new, tx.now_ms)
    write_event(tx, rules, run, STORE, agent_started(name, address.run, settings.model))
    row = rows.agent_of_command(tx.connection, run.id, asked.path)
    assert row, "it was added above"
    return row, get_run(tx.connection, asked.project, asked.run)


def _check_limits(limits: AgentLimits, depth: int, known: Sequence[AgentRow]) -> None:
    working = sum(not one.end_ms for one in known)
    if depth >= limits.depth_max:
        raise _too_many("depth", limits.depth_max, depth + 1, "Do this part of the work yourself.")
    if working >= limits.at_once_max:
        raise _too_many("at once", limits.at_once_max, working + 1, "Wait for one of them: <wait_agents any/>.")
    if len(known) >= limits.per_loop_max:
        raise _too_many("for one task", limits.per_loop_max, len(known) + 1, "Do the rest yourself.")


def _too_many(unit: str, limit: int, actual: int, advice: str) -> Exception:
    text = f"At most {limit} agents may work {unit}." if unit == "at once" else f"At most {limit} agents {unit}."
    text = f"Agents may be at most {limit} deep." if unit == "depth" else text
    return fault(
        Reason.LIMIT_EXCEEDED, f"{text} {advice}", field="agents", limit=limit, actual=actual, unit=f"agents, {unit}"
    )


def _name(asked: str, known: Sequence[AgentRow]) -> str:
    taken = {one.name for one in known}
    if not asked:
        return next(name for number in count(len(known) + 1) if (name := f"agent-{number}") not in taken)
    check_name("name", asked, AGENT_NAME)
    if asked in taken:
        raise invalid("name", f"There is an agent {asked} already in this run: give this one another name.")
    return asked


def _alias(connection: Connection, run: RunRow, name: str) -> str:
    base = f"{run.alias[:_ALIAS_CHARS]}-{name}"
    candidates = (base if number == 1 else f"{base}-{number}" for number in count(1))
    return next(alias for alias in candidates if not is_taken(connection, run.project, alias))


def _settings(tx: Transaction, rules: StoreRules, run: RunRow, loop: Loop, asked: StartAgentRequest) -> LoopSettings:
    """What is asked of the agent's loop: nothing that the loop above may not do."""
    above = loop.settings
    if above.mode is Mode.ASK and asked.mode is Mode.ACT:
        raise invalid("mode", "This task may only read, and so may its agents: leave out mode, or write ask.")
    check_count("tools", len(asked.tools), NAMES_MAX)
    for tool in asked.tools:
        check_chars("tools", tool, NAME_CHARS_MAX)
    wider = [tool for tool in asked.tools if above.tools and tool not in above.tools]
    if wider:
        raise invalid("tools", f"An agent has no tools beyond yours: {', '.join(wider)}.")
    return LoopSettings(
        asked.mode or above.mode,
        asked.model or above.model,
        no_repo=above.no_repo,
        no_interaction=above.no_interaction,
        no_web=above.no_web,
        no_proposals=above.no_proposals,
        yolo=_is_unasked(tx, rules, run, loop),
        budget=_budget(tx.connection, run, loop, asked),
        reasoning=above.reasoning,
        assembly=above.assembly,
        project_instructions=above.project_instructions,
        summaries=above.summaries,
        synthetic=True,
        tools=tuple(asked.tools) or above.tools,
    )


def _is_unasked(tx: Transaction, rules: StoreRules, run: RunRow, loop: Loop) -> bool:
    """Whether the agent has the yolo of the loop above: only where a rule for this very tool allows it.

    Raises RULE_DENIED where a rule denies that agents are started.
    """
    held = rules_in(tx.connection, rules, run)
    if held is None:
        return False
    decision = decide(held.rules, IntendedEffect(DELEGATE, principal=held.principal, mode=loop.settings.mode))
    rule = decision.rule
    if rule is None:
        return False
    if decision.verdict is RuleVerdict.DENY:
        level = rule.level.name.lower()
        message = f"A rule of the {level} denies this ({rule_words(rule)}): do the work yourself."
        raise fault(Reason.RULE_DENIED, message, rule=rule.id, level=level)
    return decision.verdict is RuleVerdict.ALLOW and rule.tool == DELEGATE and yolo_of(run.run) is not None


def _budget(connection: Connection, run: RunRow, loop: Loop, asked: StartAgentRequest) -> Budget | None:
    """What is taken for the agent out of what is left to the run and its loop. Raises LIMIT_EXCEEDED."""
    check_budget(asked.budget, "budget")
    of_run, of_loop = get_spend(connection, run, loop.sequence)
    accounts = [(run.run.settings.budget, of_run), (loop.settings.budget, of_loop)]
    limited = [(budget, spent) for budget, spent in accounts if budget]
    used = asked.used
    turns = [most.turns_max - spent.turns for most, spent in limited if most.turns_max]
    tokens = [most.tokens_max - spent.tokens - used.tokens for most, spent in limited if most.tokens_max]
    costs = [most.cost_usd_max - spent.cost_usd - used.cost_usd for most, spent in limited if most.cost_usd_max]
    times = [most.wall_s_max - spent.wall_s for most, spent in limited if most.wall_s_max]
    budget = Budget(
        turns_max=int(_taken("turns", asked.budget.turns_max, turns, 1)),
        tokens_max=int(_taken("tokens", asked.budget.tokens_max, tokens, 1)),
        cost_usd_max=_taken("US dollars", asked.budget.cost_usd_max, costs, _MICRO),
        wall_s_max=max(1.0, min(times)) if times else 0.0,
    )
    return None if budget == Budget() else budget


_MICRO: Final = 1e-6
"""Millionths of a dollar are the least that is given to an agent."""


def _taken(unit: str, asked: float, left_over: Sequence[float], least: float) -> float:
    """How much the agent gets: what was asked for, else half of what is left; 0: there is no limit."""
    if not left_over:
        return asked
    left = min(left_over)
    half = left / 2 - left / 2 % least
    if asked > left or (not asked and half < least):
        text = f"Of this task's budget {max(0.0, left):.6g} {unit} are left, too little for this agent. Ask for less."
        raise fault(Reason.LIMIT_EXCEEDED, text, field="budget", limit=f"{left:.6g}", actual=f"{asked:.6g}", unit=unit)
    return asked or half


def _copy_rules(tx: Transaction, run: RunRow, agent: RunRow) -> None:
    """What was decided for the run above holds for the agent, too."""
    for row in rule_rows.list_rules(tx.connection, run.project_id, run.id) if run.rule_changes else ():
        if row.rule.level is RuleLevel.RUN:
            rule_rows.add_rule(tx.connection, run.project_id, agent.id, row)


def wait_agents(tx: Transaction, asked: WaitAgentsRequest) -> WaitAgentsResponse:
    """Say that a command waits for agents; how they are. Raises LEASE_LOST, ENTRY_NOT_FOUND."""
    run = get_run(tx.connection, asked.project, asked.run)
    check_fence(run, asked.epoch)
    check_count("names", len(asked.names), NAMES_MAX)
    known = {one.name: one for one in rows.list_agents(tx.connection, run.id)}
    if missing := [name for name in asked.names if name not in known]:
        there = ", ".join(known) or "none"
        text = f"There is no agent {', '.join(missing)} of this run; there are: {there}."
        raise fault(Reason.ENTRY_NOT_FOUND, text, path=f"agent://{missing[0]}")
    unwaited = [one for one in known.values() if one.loop == run.loop_active and one.waiter in ("", asked.path)]
    wanted = [one for one in known.values() if one.name in asked.names] if asked.names else unwaited
    if not wanted:
        text = "No agent works for this task that nobody has waited for: <delegate> starts one."
        raise fault(Reason.ENTRY_NOT_FOUND, text, path="agent://")
    for one in wanted:
        if one.waiter != asked.path:
            rows.write_agent(tx.connection, replace(one, waiter=asked.path))
    spent, of_loop = get_spend(tx.connection, run, run.loop_active)
    return WaitAgentsResponse(tuple(agents_of(tx.connection, wanted)), spent, of_loop)


def agents_of(connection: Connection, found: Sequence[AgentRow]) -> list[Agent]:
    """Agents as callers see them: one works until its end was told, so that whoever sees the end sees all of it."""
    there = {run.id: run for run in load_runs(connection, [one.agent_id for one in found])}
    return [_agent(connection, one, there.get(one.agent_id)) for one in found]


def _agent(connection: Connection, row: AgentRow, run: RunRow | None) -> Agent:
    agent = agent_now(connection, row, run)
    is_settled = row.end_ms or agent.status in LOOP_OPEN
    return agent if is_settled else replace(agent, status=RUNNING, reason="", summary="")


def agent_now(connection: Connection, row: AgentRow, run: RunRow | None) -> Agent:
    """An agent by the rows of its run, None if that was removed."""
    loop = loop_rows.find_loop(connection, row.agent_id, FIRST_LOOP) if run else None
    if run is None or loop is None:
        return Agent(row.name, "", row.status or ABORTED, "removed", "", row.spent or Spend(), row.reserved)
    spent = row.spent or get_spend(connection, run, FIRST_LOOP)[1]
    return Agent(
        row.name, run.alias, row.status or loop.status, loop.reason, loop.summary, spent, row.reserved, row.background
    )
