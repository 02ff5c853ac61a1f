"""Budget checks: what a run and a loop may still spend, and the reason if they may not.

Every limit is checked before something is spent: turns, cost and time before a turn begins, tokens and cost again when
the packet of the turn is known, with an estimate for its call. The reason of a loop that ended this way says which
limit it was, with figures, in a form that `exhaustion_in` parses. Source: architecture 11 (the lost attempt is charged
at its reservation)
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import Budget, Spend, TurnResult

WORD: Final = "budget_exhausted"
"""First word of the reason of such a loop."""


class BudgetKind(Enum):
    """Which limit was reached; the values are the words in reasons of loops."""

    TURNS = "turns"
    TOKENS = "tokens"
    COST = "cost"
    WALL = "wall"


class Exhaustion(Struct, frozen=True):
    """A limit that was reached: the run's, or the loop's own; `detail` has the figures."""

    kind: BudgetKind
    of_run: bool
    detail: str

    @property
    def reason(self) -> str:
        """Reason of the loop that it ends: `budget_exhausted:{kind}: {detail}`."""
        return f"{WORD}:{self.kind.value}: {self.detail}"


def exhaustion_in(reason: str) -> Exhaustion | None:
    """Parse the reason of a loop; None if it ended for another reason."""
    word, _, rest = reason.partition(":")
    name, _, detail = rest.partition(": ")
    if word != WORD or name not in {kind.value for kind in BudgetKind}:
        return None
    return Exhaustion(BudgetKind(name), detail.startswith("the run "), detail)


def price_of(tokens: int, spent: Spend) -> float:
    """Estimated cost of this many tokens in US dollars, from what the run has paid so far; 0 if unknown."""
    paid_tokens = spent.tokens - spent.reserved_tokens
    return tokens * (spent.cost_usd - spent.reserved_cost_usd) / paid_tokens if paid_tokens > 0 else 0.0


def before_turn(budget: Budget, spent: Spend, *, of_run: bool) -> Exhaustion | None:
    """Check whether another turn may begin; None: it may."""
    return next(_reached(budget, spent, of_run), None)


def _reached(budget: Budget, spent: Spend, of_run: bool) -> Iterator[Exhaustion]:
    who, cost_max = _who(of_run=of_run), budget.cost_usd_max
    if budget.turns_max and spent.turns >= budget.turns_max:
        yield Exhaustion(BudgetKind.TURNS, of_run, f"{who} has taken {spent.turns} of {budget.turns_max} turns")
    if budget.tokens_max and spent.tokens >= budget.tokens_max:
        yield Exhaustion(BudgetKind.TOKENS, of_run, f"{who} has spent {spent.tokens} of {budget.tokens_max} tokens")
    if budget.wall_s_max and spent.wall_s >= budget.wall_s_max:
        yield over_time(budget, of_run=of_run)
    if cost_max and spent.turns_without_cost:
        advice = "no price is known: `turnwright models add ALIAS vendor/model --price IN/CACHED/OUT` sets one"
        yield Exhaustion(BudgetKind.COST, of_run, f"{who} has a limit of ${cost_max:g}, and {advice}")
    if cost_max and spent.cost_usd >= cost_max:
        yield Exhaustion(BudgetKind.COST, of_run, f"{who} has spent ${spent.cost_usd:.4f} of ${cost_max:g}")


def over_time(budget: Budget, *, of_run: bool) -> Exhaustion:
    detail = f"{_who(of_run=of_run)} has worked for all of its {budget.wall_s_max:g} seconds"
    return Exhaustion(BudgetKind.WALL, of_run, detail)


def before_call(budget: Budget, spent: Spend, tokens: int, cost_usd: float, *, of_run: bool) -> Exhaustion | None:
    """Check whether a call with this estimate fits what is left; None: it does."""
    who = f"{_who(of_run=of_run)} has spent"
    if budget.tokens_max and spent.tokens + tokens > budget.tokens_max:
        detail = f"{who} {spent.tokens} of {budget.tokens_max} tokens, and the next call may take {tokens}"
        return Exhaustion(BudgetKind.TOKENS, of_run, detail)
    if budget.cost_usd_max and spent.cost_usd + cost_usd > budget.cost_usd_max:
        paid = f"${spent.cost_usd:.4f} of ${budget.cost_usd_max:g}"
        return Exhaustion(BudgetKind.COST, of_run, f"{who} {paid}, and the next call may cost ${cost_usd:.4f}")
    return None


def _who(*, of_run: bool) -> str:
    return "the run" if of_run else "the loop"


def after_turn(spent: Spend, result: TurnResult) -> Spend:
    """The spend after a turn has ended; the turn itself was counted when it began."""
    usage = result.usage
    # Tokens that no vendor reported count as lost, whether the call was answered or not.
    unknown = usage.cost_usd is None and usage.total_tokens + result.lost_tokens > 0
    return replace(
        spent,
        tokens=spent.tokens + usage.total_tokens + result.lost_tokens + result.tool_tokens,
        lost_tokens=spent.lost_tokens + result.lost_tokens,
        cost_usd=spent.cost_usd + (usage.cost_usd or 0.0) + result.lost_cost_usd + result.tool_cost_usd,
        turns_without_cost=spent.turns_without_cost + unknown,
        wall_s=spent.wall_s + result.work_ms / 1000,
        prompt_tokens=spent.prompt_tokens + usage.prompt_tokens,
    )
