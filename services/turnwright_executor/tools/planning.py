"""set_plan, update_plan and get_plan: the model's tools for plans.

A plan is written in `perform` with the idempotency key of its command: running the command again returns the first
answer. Changes need no decision. Source: rows RP01-RP04, AP16; decisions C45, C46.
"""

from __future__ import annotations

from typing import Final

from turnwright_values.types import PlanKind

from turnwright_core.errors import InvalidError, Reason
from turnwright_core.limits import PLAN_BODY_BYTES_MAX, PLAN_DELTA_BYTES_MAX
from turnwright_core.plans.items import items_of, word, words
from turnwright_core.plans.plan import MAIN, PLAN_ID, Plan
from turnwright_core.text import count_tokens
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.effects import CallEffect, Effect, EffectClass
from turnwright_executor.tools.attributes import integer_of
from turnwright_executor.tools.contract import Context, Proposed, answered, refusal
from turnwright_executor.tools.immediate import ImmediateTool
from turnwright_executor.tools.parameters import BODY, ToolParameter
from turnwright_executor.tools.paths import get_item, is_file, normalized
from turnwright_grammar.reply import Command

UPDATES: Final = "\n\n---\n\n## Plan updates\n\n"
"""Separates a plan from its deltas in get_plan; a model knows them as `<plan-update>`."""

_OUTCOMES: Final = {
    Reason.ENTRY_NOT_FOUND: "not_found:404",
    Reason.LIMIT_EXCEEDED: "too_large:413",
    Reason.INVALID_FIELD: "invalid:400",
}
_ADVICE: Final = {Reason.ENTRY_NOT_FOUND: " <set_plan> makes it."}


_WHICH: Final = ToolParameter("plan_id", "Which plan; main where it is left out.")


class SetPlan:
    """Creates or replaces a plan."""

    name = "set_plan"
    parameters = (
        _WHICH,
        ToolParameter(BODY, "The whole plan; for items a JSON list, for a file its path.", required=True),
        ToolParameter("kind", "What the body is; markdown where it is left out.", words=words(PlanKind)),
        ToolParameter("mode", "A word for the mode that it is written in."),
    )
    effect_class = EffectClass.IDEMPOTENT

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        plan = _plan_of(command, context)
        await _check_body(plan, context)
        return Proposed(CallEffect(), f"set the plan {plan.plan_id}", needs_decision=False)

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        plan = await answered(context.plans.set(_plan_of(command, context), context.key), _OUTCOMES, _ADVICE)
        tokens = count_tokens(plan.body, self._settings.token_divisor)
        return Done(
            f"The plan {plan.plan_id} is version {plan.version} now, {tokens} tokens.",
            attributes=_record_attributes(plan),
        )


class UpdatePlan:
    """Appends to a plan."""

    name = "update_plan"
    parameters = (_WHICH, ToolParameter(BODY, "What is to be added.", required=True))
    effect_class = EffectClass.IDEMPOTENT

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        plan_id = _plan_id(command)
        if not command.body:
            raise refusal("invalid:400", "<update_plan> needs what is to be added: <update_plan>...</update_plan>.")
        _check_bytes("A delta of a plan", command.body, PLAN_DELTA_BYTES_MAX)
        return Proposed(CallEffect(), f"add to the plan {plan_id}", needs_decision=False)

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        plan = await answered(context.plans.update(_plan_id(command), command.body, context.key), _OUTCOMES, _ADVICE)
        sequence = plan.deltas[-1].sequence
        text = f"Added to the plan {plan.plan_id}: delta {sequence} of version {plan.version}."
        return Done(text, attributes=_record_attributes(plan) | {"sequence": sequence})


class GetPlan(ImmediateTool):
    """Shows a plan with its deltas."""

    name = "get_plan"
    parameters = (_WHICH, ToolParameter("version", "Which version; the latest where it is left out.", "integer"))

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        version = integer_of(command, "version") or 0
        if version < 0:
            raise refusal("invalid:400", "Versions of plans are numbered from 1.")
        plan = await answered(context.plans.get(_plan_id(command), version), _OUTCOMES, _ADVICE)
        texts = "\n\n".join(delta.text for delta in plan.deltas)
        return Done(plan.body + (UPDATES + texts if texts else ""), attributes=_record_attributes(plan))


def _record_attributes(plan: Plan) -> dict[str, object]:
    """What a record says about a plan besides its text."""
    attributes: dict[str, object] = {"plan_id": plan.plan_id, "version": plan.version, "kind": word(plan.kind)}
    return attributes | {"mode": plan.mode, "deltas": len(plan.deltas)}


def _plan_id(command: Command) -> str:
    plan_id = command.attributes.get("plan_id", "").strip() or MAIN
    if not PLAN_ID.fullmatch(plan_id):
        problem = (
            f'{plan_id[:80]!r} cannot be a plan_id: use 1 to 128 letters, digits, _ and -, as in plan_id="release".'
        )
        raise refusal("invalid:400", problem)
    return plan_id


def _plan_of(command: Command, context: Context) -> Plan:
    """The plan in a command; its body is not validated."""
    name = command.attributes.get("kind", "").strip().lower() or word(PlanKind.MARKDOWN)
    if name not in words(PlanKind):
        raise refusal("invalid:400", f"kind must be one of {', '.join(words(PlanKind))}; it is {name[:80]!r}.")
    mode = command.attributes.get("mode", "").strip() or context.mode.name.lower()
    return Plan(_plan_id(command), PlanKind[name.upper()], command.body, mode=mode)


async def _check_body(plan: Plan, context: Context) -> None:
    """Validate the format and length of the body. Raises RefusedError."""
    _check_bytes("A plan", plan.body, PLAN_BODY_BYTES_MAX)
    if not plan.body:
        raise refusal("invalid:400", "<set_plan> needs the whole plan: <set_plan># Goal ...</set_plan>.")
    if plan.kind is PlanKind.ITEMS:
        try:
            items_of(plan.body)
        except InvalidError as error:
            shape = '[{"content": "...", "priority": "high", "status": "pending"}]'
            raise refusal(
                _OUTCOMES.get(error.reason, "invalid:400"), f"{error.message} Write the items as {shape}."
            ) from None
    if plan.kind is PlanKind.FILE:
        if not is_file(plan.body):
            raise refusal(
                "invalid:400", f"The body of a file plan is the path of a project file, not {plan.body[:80]}."
            )
        await get_item(await normalized(plan.body, context), context)


def _check_bytes(what: str, text: str, limit: int) -> None:
    size = len(text.encode(errors="replace"))
    if size > limit:
        raise refusal("too_large:413", f"{what} has at most {limit} bytes, and this has {size}. Write less.")
