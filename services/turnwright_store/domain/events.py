"""Events that the store writes: changed plans, decisions, mode switches."""

from __future__ import annotations

from typing import Final

from turnwright_values.types import Agent, DecisionKind, Mode, PlanKind

from turnwright_core.decisions import Decision
from turnwright_core.events import RunEvent, Subkind, slug_of

_PLAN: Final = "plan"
_PROPOSAL: Final = "proposal"
_LOOP: Final = "loop"

_DECIDED: Final = {
    DecisionKind.ACCEPTED: "accepted",
    DecisionKind.REJECTED: "rejected",
    DecisionKind.EXPIRED: "expired",
}


def plan_set(plan_id: str, version: int, kind: PlanKind) -> RunEvent:
    """A plan was set. Versions are never reused, so its slug is unique."""
    sentence = f"The plan {plan_id} is now version {version}."
    return _plan_notice(plan_id, version, kind, "set", sentence, f"{plan_id}-v{version}")


def plan_removed(plan_id: str, version: int, kind: PlanKind) -> RunEvent:
    """The latest version of a plan was removed."""
    sentence = f"The plan {plan_id} was removed; version {version} was the latest."
    return _plan_notice(plan_id, version, kind, "removed", sentence, f"{plan_id}-v{version}-removed")


def _plan_notice(plan_id: str, version: int, kind: PlanKind, change: str, sentence: str, slug: str) -> RunEvent:
    payload = {"plan_id": plan_id, "version": version, "kind": kind.name.lower(), "change": change}
    return RunEvent(Subkind.SYSTEM_NOTICE, _PLAN, payload, sentence, slug)


def plan_delta(plan_id: str, version: int, sequence: int) -> RunEvent:
    return RunEvent(
        Subkind.PLAN_DELTA,
        _PLAN,
        {"plan_id": plan_id, "version": version, "sequence": sequence},
        f"Something was added to the plan {plan_id}, version {version}: its delta {sequence}.",
        f"{plan_id}-v{version}-{sequence}",
    )


def proposal_decided(path: str, tool: str, made: Decision) -> RunEvent:
    """A proposal was accepted, rejected, or expired."""
    decided = _DECIDED[made.kind]
    payload = {"path": path, "tool": tool, "decision": decided, "principal": made.principal, "comment": made.comment}
    more = {"edited_paths": list(made.contents), "client_runs": made.client_runs}
    if made.kind is DecisionKind.EXPIRED:
        sentence = f"Nobody decided on {path} in time."
    else:
        edits = " with edits" if made.contents else ""
        sentence = f"{made.principal} {decided} {path}{edits}."
    fields = payload | {key: value for key, value in more.items() if value}
    return RunEvent(Subkind.TOOL_DECISION, _PROPOSAL, fields, sentence, slug_of(path))


def tool_returned(path: str, tool: str, made: Decision) -> RunEvent:
    how = "failed" if made.tool_failed else "returned"
    payload = {"path": path, "tool": tool, "failed": made.tool_failed, "principal": made.principal}
    sentence = f"The tool {tool} of the client {how}: {path}."
    return RunEvent(Subkind.IDE_CALLBACK, _PROPOSAL, payload, sentence, slug_of(path))


def mode_switched(loop: int, before: Mode, mode: Mode) -> RunEvent:
    """A loop begins in another mode than the previous one."""
    was, now = before.name.lower(), mode.name.lower()
    payload = {"loop": loop, "from": was, "to": now}
    return RunEvent(Subkind.MODE_SWITCH, _LOOP, payload, f"The mode is now {now}; it was {was}.", f"loop_{loop}")


def _agent_notice(name: str, run: str, change: str, sentence: str, slug: str, **more: object) -> RunEvent:
    payload = {"agent": name, "run": run, "change": change, **more}
    return RunEvent(Subkind.SYSTEM_NOTICE, f"agent:{name}", payload, sentence, slug)


def agent_started(name: str, run: str, model: str) -> RunEvent:
    sentence = f"The agent {name} has started, as the run {run}."
    return _agent_notice(name, run, "started", sentence, f"agent-{name}-started", model=model)


def agent_ended(agent: Agent) -> RunEvent:
    why = f", {agent.reason}" if agent.reason else ""
    sentence = f"The agent {agent.name} has ended with {agent.status}{why}: its answer is in agent://{agent.name}."
    spent = {"turns": agent.spent.turns, "tokens": agent.spent.tokens, "cost_usd": agent.spent.cost_usd}
    more = {"status": agent.status, "reason": agent.reason, "spent": spent}
    return _agent_notice(agent.name, agent.run, "ended", sentence, f"agent-{agent.name}-ended", **more)


def agent_proposes(name: str, run: str, path: str) -> RunEvent:
    """Something that an agent proposes, or asks, waits for a decision."""
    sentence = f"The agent {name} waits for a decision in the run {run}: {path}."
    return _agent_notice(name, run, "proposal", sentence, f"agent-{name}-proposal", path=path)
