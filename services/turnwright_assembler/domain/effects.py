"""The writes that a packet requires: demotions, error entries, and the prompt's figures. The caller commits them.

Source: RU064, RU142, RU143, RU215-RU218, RU222; decisions C3, C9, C23, C26.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from itertools import accumulate
from typing import Final

from msgspec import Struct
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier, Visibility

from turnwright_assembler.domain.blocks import Block, Figures
from turnwright_assembler.domain.ladder import STEPS, LadderResult, LadderStep, Measured, Rung
from turnwright_core.schemes import BUILT_IN, Schemes
from turnwright_core.text import free_path, scheme_of
from turnwright_core.value_methods import to_attributes_json

BUDGET_OUTCOME: Final = "budget:413"
PATHS_LISTED_MAX: Final = 100
"""Maximum number of demoted paths in an error entry, which must not fill the next packet; the rest is counted."""
PATHS_BYTES_MAX: Final = 512 * 1024
"""Maximum bytes of the demoted paths in the attributes of an error entry, half of what those may have."""
SUMMARIZED_PATHS: Final = "summarized"
"""Attribute of an error entry: the demoted paths."""
PLANS_LISTED_MAX: Final = 20
"""Maximum number of plans in the last error entry, the largest ones."""

_SENTENCES: Final = {
    Rung.PREVIOUS_TURN: "These entries of the previous turn were summarized, and the turn went on:",
    Rung.EARLIER_TURNS: "These entries of earlier turns were summarized, and the turn went on:",
    Rung.PROMPT: "The prompt itself was summarized, and the turn went on:",
    Rung.OVERFLOW: "The loop ends. That is what would be left if these were summarized; they stay as they are:",
    Rung.TURN: "What the turn brought was summarized; its commands are carried out all the same:",
}


class PlanCost(Struct, frozen=True):
    """The tokens of a plan with its deltas."""

    plan_id: str
    tokens: int
    deltas: int


def plan_costs(fixed: Iterable[Block]) -> tuple[PlanCost, ...]:
    """What each plan of a packet costs, largest first."""
    by_plan: defaultdict[str, list[int]] = defaultdict(list)
    for block in fixed:
        if block.plan:
            by_plan[block.plan.plan_id].append(block.s_tokens)
    costs = (PlanCost(plan_id, sum(tokens), len(tokens) - 1) for plan_id, tokens in by_plan.items())
    return tuple(sorted(costs, key=lambda cost: (-cost.tokens, cost.plan_id)))


def effects_of(
    climbed: LadderResult[Measured],
    prompt: Block | None,
    figures: Figures,
    *,
    turn: int,
    loop: int,
    ceiling: int,
    taken: Container[str],
    schemes: Schemes = BUILT_IN,
    plans: Sequence[PlanCost] = (),
) -> tuple[EntryWrite, ...]:
    """All writes of a packet, in order; `taken` are paths that the run already sees, `plans` their costs."""
    demoted = climbed.demoted
    writes = [_demotion(path, schemes) for path in demoted if prompt is None or path != prompt.path]
    if prompt and (write := _prompt_write(prompt, prompt.path in demoted, figures)):
        writes.append(write)
    writes += [_error(step, turn, loop, ceiling, taken, plans) for step in climbed.steps]
    return tuple(writes)


def turn_effects(
    step: LadderStep | None, *, turn: int, loop: int, ceiling: int, taken: Container[str], schemes: Schemes = BUILT_IN
) -> tuple[EntryWrite, ...]:
    """All writes of a demotion after a turn's commands, in order; `taken` are paths that the run already sees."""
    if step is None:
        return ()
    demotions = (_demotion(path, schemes) for path in step.demoted)
    return (*demotions, _error(step, turn, loop, ceiling, taken))


def writer_for(scheme: str, schemes: Schemes = BUILT_IN) -> Tier:
    """The tier with which we may change an entry of a scheme: plugin if the scheme lists it, else its highest."""
    allowed = schemes.rules(scheme).writable_by
    return Tier.PLUGIN if Tier.PLUGIN in allowed else max(allowed)


def _demotion(path: str, schemes: Schemes) -> EntryWrite:
    return EntryWrite(path, SetEntry(visibility=Visibility.SUMMARIZED), writer_for(scheme_of(path) or "", schemes))


def _prompt_write(prompt: Block, is_demoted: bool, figures: Figures) -> EntryWrite | None:
    """The prompt stores the figures of the loop's first packet, so that later packets repeat them. Source: C23."""
    assert prompt.prompt is not None
    attributes = None
    if prompt.prompt.figures is None:
        shown = {"tokenUsage": figures.usage, "tokensFree": figures.free}
        attributes = to_attributes_json(prompt.prompt.attributes | shown)
    elif not is_demoted:
        return None
    visibility = Visibility.SUMMARIZED if is_demoted else Visibility.UNSPECIFIED
    return EntryWrite(prompt.path, SetEntry(attributes_json=attributes, visibility=visibility), writer_for("prompt"))


def _error(
    step: LadderStep, turn: int, loop: int, ceiling: int, taken: Container[str], plans: Sequence[PlanCost] = ()
) -> EntryWrite:
    return EntryWrite(
        path=free_path(f"log://turn_{turn}/error/budget_{STEPS[step.rung]}", taken),
        change=SetEntry(
            body="\n".join([*_words(step, turn, ceiling), *(_of_plans(plans) if step.rung is Rung.OVERFLOW else ())]),
            attributes_json=to_attributes_json(_attributes(step)),
            visibility=Visibility.VISIBLE,
            state=State.FAILED,
            outcome=BUDGET_OUTCOME,
        ),
        writer=writer_for("log"),
        turn=turn,
        loop=loop,
    )


def _attributes(step: LadderStep) -> dict[str, object]:
    """The attributes of an error entry: what was summarized, all of it, so that it can be undone."""
    known: dict[str, object] = {"tool": "error", "target": "budget", "step": int(step.rung)}
    if step.rung is Rung.OVERFLOW:
        return known
    sizes = accumulate(len(path.encode()) + len('"",') for path in step.demoted)
    kept = [path for path, size in zip(step.demoted, sizes, strict=True) if size <= PATHS_BYTES_MAX]
    return known | {SUMMARIZED_PATHS: kept}


def _words(step: LadderStep, turn: int, ceiling: int) -> list[str]:
    listed = [f"* {path}" for path in step.demoted[:PATHS_LISTED_MAX]]
    if not listed:
        listed = ["* nothing: no entry was left to summarize"]
    if len(step.demoted) > PATHS_LISTED_MAX:
        listed.append(f"* and {len(step.demoted) - PATHS_LISTED_MAX} more")
    which = f"The packet after turn {turn} would have" if step.rung is Rung.TURN else f"The packet of turn {turn} had"
    first = f"{which} {step.tokens} tokens, {step.excess} over the ceiling of {ceiling}."
    return [f"{first} {_SENTENCES[step.rung]}", *listed]


def _of_plans(plans: Sequence[PlanCost]) -> list[str]:
    """Plans' share of a packet that does not fit. Source: C46."""
    if not plans:
        return []
    listed = [
        f"* plan {plan.plan_id}: {plan.tokens} tokens with {plan.deltas} deltas" for plan in plans[:PLANS_LISTED_MAX]
    ]
    if len(plans) > PLANS_LISTED_MAX:
        listed.append(f"* and {len(plans) - PLANS_LISTED_MAX} more")
    total = sum(plan.tokens for plan in plans)
    return [f"Plans take {total} tokens of it and are never summarized; set them again in fewer words:", *listed]
