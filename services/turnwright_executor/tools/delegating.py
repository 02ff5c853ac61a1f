"""delegate and wait_agents: the model's tools for agents, runs that do a part of its work.

Starting one is idempotent by the record of its command. A command that waits parks the loop, and the store wakes it
once the agents have ended; until then nothing of this process is held. Source: docs/adr/0083.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Final

from msgspec.structs import replace
from turnwright_values.store import StartAgentRequest
from turnwright_values.types import Agent, AgentsEffect, Budget, Mode, State

from turnwright_core.errors import Reason
from turnwright_core.runs import LOOP_OPEN, STATUSES
from turnwright_core.tools import DELEGATE, WAIT_AGENTS
from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.effects import CallEffect, Effect, EffectClass
from turnwright_executor.domain.policy import is_flagged
from turnwright_executor.tools.attributes import integer_of
from turnwright_executor.tools.contract import Context, Proposed, WaitingError, answered, refusal
from turnwright_executor.tools.parameters import BODY, ToolParameter
from turnwright_executor.tools.ports import Agents
from turnwright_grammar.reply import Command

ANSWER_CHARS_MAX: Final = 8000
"""Characters of the answers of agents that one result shows together; whole ones are in their entries."""

_OUTCOMES: Final = {
    Reason.LIMIT_EXCEEDED: "limit:429",
    Reason.INVALID_FIELD: "invalid:400",
    Reason.MODEL_NOT_FOUND: "not_found:404",
    Reason.ENTRY_NOT_FOUND: "not_found:404",
    Reason.RULE_DENIED: "rejected:403",
    Reason.RIGHT_MISSING: "rejected:403",
    Reason.QUOTA_EXCEEDED: "quota_exhausted:429",
}
_MODES: Final = {"": Mode.UNSPECIFIED, "ask": Mode.ASK, "act": Mode.ACT}


class Delegate:
    """Starts an agent."""

    name = DELEGATE
    parameters = (
        ToolParameter("name", "What you call it: letters, digits, _ and -, at most 40."),
        ToolParameter(BODY, "Its whole task: it knows nothing of yours.", required=True),
        ToolParameter("model", "Alias of its model; yours where it is left out."),
        ToolParameter("mode", "Whether it may change anything; as you where it is left out.", words=("ask", "act")),
        ToolParameter("tools", "The tools that it may use, of yours, with blanks between; all where it is left out."),
        ToolParameter("budget_usd", "What it may cost, in US dollars, out of your budget.", "number"),
        ToolParameter("turns", "How many turns it may take, out of your budget.", "integer"),
        ToolParameter("tokens", "How many tokens it may use, out of your budget.", "integer"),
        ToolParameter("background", "Whether you go on at once and wait for it later.", "boolean"),
    )
    effect_class = EffectClass.IDEMPOTENT

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        wanted = _wanted(command, _agents(context))
        where = "in the background" if wanted.background else "and wait for it"
        return Proposed(
            CallEffect(), f"start the agent {wanted.name}, {where}".replace(" ,", ","), needs_decision=False
        )

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        agents = _agents(context)
        if isinstance(effect, AgentsEffect):
            return _settled(await answered(agents.wait(context.record_path, effect.names), _OUTCOMES), effect)
        wanted = _wanted(command, agents)
        agent = await answered(agents.start(replace(wanted, path=context.record_path)), _OUTCOMES)
        if wanted.background:
            text = f"The agent {agent.name} works as the run {agent.run}: <wait_agents/> waits for it."
            return Done(text, attributes={"agent": agent.name, "run": agent.run})
        return _settled((agent,), AgentsEffect((agent.name,)))


class WaitAgents:
    """Waits for agents."""

    name = WAIT_AGENTS
    parameters = (
        ToolParameter("names", "Which, with blanks between; all in the background where it is left out."),
        ToolParameter("any", "Whether one of them is enough.", "boolean"),
    )
    effect_class = EffectClass.IDEMPOTENT

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        _agents(context)
        return Proposed(CallEffect(), "wait for agents", needs_decision=False)

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        wanted = effect.names if isinstance(effect, AgentsEffect) else _words(command, "names")
        # Who names nobody, and has nobody to wait for, has made no mistake in a name.
        outcomes = _OUTCOMES if wanted else {**_OUTCOMES, Reason.ENTRY_NOT_FOUND: "no_agents:404"}
        found = await answered(_agents(context).wait(context.record_path, wanted), outcomes)
        is_any = is_flagged(command, "any")
        done = _settled(found, AgentsEffect(tuple(one.name for one in found), is_any))
        # What became of them is for the model to judge: waiting has not failed.
        return Done(done.body, attributes=done.attributes)


def handed_on(command: Command, tools: Collection[str]) -> Command:
    """The command that `delegate` with an agent of another vendor stands for, which is a tool; any other as it is."""
    tool = f"{command.attributes.get('agent', '').strip()}.{DELEGATE}"
    if command.name != DELEGATE or tool not in tools:
        return command
    # What else is said of an agent of ours has no meaning for it; what would change what it may do is refused.
    given = {name: text for name, text in command.attributes.items() if name not in ("agent", "name")}
    return replace(command, name=tool, attributes=given)


def _agents(context: Context) -> Agents:
    if context.agents is None:
        raise refusal("permission:403", "Agents are started by the model of a loop, and by nobody else.")
    return context.agents


def _wanted(command: Command, agents: Agents) -> StartAgentRequest:
    """What a command asks for. Raises RefusedError."""
    attributes = command.attributes
    if not command.body.strip():
        raise refusal("invalid:400", 'An agent needs its task: <delegate name="tests">Run the tests ...</delegate>.')
    if named := attributes.get("agent", "").strip():
        there = ", ".join(tool.removesuffix(f".{DELEGATE}") for tool in agents.tools if tool.endswith(f".{DELEGATE}"))
        text = (
            f"There is no agent {named[:80]!r} of another vendor here, but {there or 'none'}. One of yours has a name."
        )
        raise refusal("not_found:404", text)
    mode = attributes.get("mode", "").strip().lower()
    if mode not in _MODES:
        raise refusal("invalid:400", f"mode is ask or act, not {mode[:80]!r}.")
    tools = _words(command, "tools")
    if unknown := [tool for tool in tools if tool not in agents.tools]:
        there = ", ".join(agents.tools)
        raise refusal("invalid:400", f"You have no tool {', '.join(unknown)[:200]}; an agent can have: {there}.")
    budget = Budget(_positive(command, "turns"), _positive(command, "tokens"), _dollars(command))
    return StartAgentRequest(
        name=attributes.get("name", "").strip(),
        prompt=command.body.strip(),
        model=attributes.get("model", "").strip(),
        mode=_MODES[mode],
        tools=tools,
        budget=budget,
        background=is_flagged(command, "background"),
    )


def _words(command: Command, name: str) -> tuple[str, ...]:
    words = command.attributes.get(name, "").replace(",", " ").replace("[", " ").replace("]", " ").replace('"', " ")
    return tuple(dict.fromkeys(words.split()))


def _positive(command: Command, name: str) -> int:
    value = integer_of(command, name) or 0
    if value < 0:
        raise refusal("invalid:400", f"{name} must be a number above 0, not {value}.")
    return value


def _dollars(command: Command) -> float:
    text = command.attributes.get("budget_usd", "").strip().removeprefix("$")
    try:
        value = float(text or 0)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and value >= 0):
        raise refusal(
            "invalid:400", f'budget_usd is a number of US dollars, as in budget_usd="0.50", not {text[:80]!r}.'
        )
    return value


def _settled(found: Sequence[Agent], effect: AgentsEffect) -> Done:
    """The result of a command that waits for these agents. Raises WaitingError if there is none yet."""
    ended = [one for one in found if one.status not in LOOP_OPEN]
    if not ended or (len(ended) < len(found) and not effect.any):
        names = ", ".join(one.name for one in found)
        raise WaitingError(effect, f"Waits for the agents {names}.")
    room = ANSWER_CHARS_MAX // len(found)
    body = "\n\n".join(_result_of(one, room) for one in found)
    attributes = {"agents": [_figures(one) for one in found]}
    broken = next((one for one in ended if STATUSES[one.status].exit_code), None)
    if broken:
        return Done(body, State.FAILED, f"agent:{broken.status}", attributes)
    return Done(body, attributes=attributes)


def _result_of(agent: Agent, room: int) -> str:
    if agent.status in LOOP_OPEN:
        return f"The agent {agent.name} still works, as the run {agent.run}."
    spent, answer = agent.spent, agent.summary.strip()
    cost = "of unknown cost" if spent.turns_without_cost else f"${spent.cost_usd:.4f}"
    reason = f", {agent.reason}" if agent.reason else ""
    figures = f"{spent.turns} turns, {spent.tokens} tokens, {cost}"
    head = f"The agent {agent.name} has ended with {agent.status}{reason}: {figures}."
    if not answer:
        return f"{head} It has said nothing."
    if len(answer) <= room:
        return f"{head}\n{answer}"
    return f"{head} The beginning of its answer, the whole is in agent://{agent.name}:\n{answer[:room]}"


def _figures(agent: Agent) -> dict[str, object]:
    spent = agent.spent
    figures: dict[str, object] = {"name": agent.name, "run": agent.run, "status": agent.status}
    cost = None if spent.turns_without_cost else spent.cost_usd
    return {**figures, "turns": spent.turns, "tokens": spent.tokens, "cost_usd": cost}
