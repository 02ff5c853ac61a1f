"""The spend of a loop: its limits and its run's, what they have spent, and what the open turn has used.

Theory of operation. What was spent is stored turn by turn. A loop with limits gets it with its claim; from
then on the meter adds the turns that it ends. The expected consumption of a call is reserved before the call: the
stored packet with its tokens is that reservation, so a call that was lost with its executor is charged by the next
owner. The time limit is a deadline for everything that the loop does.
Source: architecture 11; rows RU224, RU281.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.store import ClaimRunResponse
from turnwright_values.types import Budget, Loop, Spend, TurnResult

from turnwright_core.limits import REPLY_RESERVE_TOKENS
from turnwright_core.text import count_tokens
from turnwright_executor.domain.budgets import (
    Exhaustion,
    after_turn,
    before_call,
    before_turn,
    over_time,
    price_of,
)
from turnwright_executor.turn.generation import Draft


class BudgetError(Exception):
    """A limit is reached: the loop ends."""

    def __init__(self, exhaustion: Exhaustion) -> None:
        super().__init__(exhaustion.detail)
        self.exhaustion = exhaustion


class _Account(Struct):
    """What a run or a loop has spent of its budget. Mutable: grows with each turn."""

    budget: Budget
    of_run: bool
    spent: Spend


class SpendMeter:
    """Spend and limits of one loop, while one executor works on it."""

    def __init__(self, claim: ClaimRunResponse, loop: Loop, clock_s: Callable[[], float]) -> None:
        """`clock_s` is monotonic."""
        self._clock_s = clock_s
        self._run = _Account(claim.run.settings.budget or Budget(), True, claim.spent or Spend())
        accounts = (self._run, _Account(loop.settings.budget or Budget(), False, claim.loop_spent or Spend()))
        self._limited = [one for one in accounts if one.budget != Budget()]
        self._turn_began_s = clock_s()
        self._call_tokens = 0
        self._lost_tokens = 0
        self._lost_cost_usd = 0.0
        self._tool_tokens = 0
        self._tool_cost_usd = 0.0

    def time_left(self) -> tuple[float, Exhaustion] | None:
        """The seconds left for work with the ending for when they are over; None: no limit."""
        times_left = (
            (max(0.0, one.budget.wall_s_max - one.spent.wall_s), over_time(one.budget, of_run=one.of_run))
            for one in self._limited
            if one.budget.wall_s_max
        )
        return min(times_left, key=lambda each: each[0], default=None)

    @property
    def limits_cost(self) -> bool:
        """Whether the loop or its run has a limit on cost."""
        return any(one.budget.cost_usd_max > 0 for one in self._limited)

    def begin_turn(self) -> None:
        """Another turn is about to begin. Raises BudgetError."""
        for one in self._limited:
            _refuse(before_turn(one.budget, one.spent, of_run=one.of_run))
            one.spent = replace(one.spent, turns=one.spent.turns + 1)
        self._open(0)

    def resume_turn(self, known: TurnResult) -> None:
        """An open turn is resumed, whose call determined this."""
        self._open(known.model_ms)
        self._lost_tokens, self._lost_cost_usd = known.lost_tokens, known.lost_cost_usd
        self._tool_tokens, self._tool_cost_usd = known.tool_tokens, known.tool_cost_usd

    @property
    def lost(self) -> tuple[int, float]:
        """Tokens and US dollars of the open turn's lost calls."""
        return self._lost_tokens, self._lost_cost_usd

    def _open(self, worked_ms: int) -> None:
        self._turn_began_s = self._clock_s() - worked_ms / 1000
        self._lost_tokens, self._lost_cost_usd = 0, 0.0
        self._tool_tokens, self._tool_cost_usd = 0, 0.0

    def reserve(self, packet_tokens: int, lost_calls: int = 0) -> None:
        """Reserve budget for a call with this packet, after this many lost ones. Raises BudgetError."""
        self._call_tokens = packet_tokens + REPLY_RESERVE_TOKENS
        self._lost_tokens, self._lost_cost_usd = 0, 0.0
        self._lose(lost_calls * self._call_tokens)
        self._afford_call()

    @property
    def reserved(self) -> tuple[int, float]:
        """Tokens that the call may take, and what they may cost, in US dollars."""
        return self._call_tokens, price_of(self._call_tokens, self._run.spent)

    def set_aside(self, tokens: int) -> float:
        """Take tokens for a call beside the turns; returns what they may cost, in US dollars. Raises BudgetError."""
        cost_usd = price_of(tokens, self._run.spent)
        for one in self._limited:
            _refuse(before_call(one.budget, one.spent, tokens, cost_usd, of_run=one.of_run))
        self.give_back(-tokens, -cost_usd)
        return cost_usd

    def give_back(self, tokens: int, cost_usd: float) -> None:
        """Of what was set aside, this was not used."""
        for one in self._limited:
            spent = one.spent
            one.spent = replace(spent, tokens=spent.tokens - tokens, cost_usd=spent.cost_usd - cost_usd)

    def take_for_tool(self, tokens: int, known: TurnResult) -> float:
        """Take tokens for a model that a tool asks in the open turn, of whose own call this is known.

        Returns what they may cost, in US dollars. Raises BudgetError.
        """
        used = self.with_spend(known)
        cost_usd = price_of(tokens, after_turn(self._run.spent, used))
        for one in self._limited:
            _refuse(before_call(one.budget, after_turn(one.spent, used), tokens, cost_usd, of_run=one.of_run))
        self.charge_tool(tokens, cost_usd)
        return cost_usd

    def charge_tool(self, tokens: int, cost_usd: float) -> None:
        """Models that tools ask have taken so much more, or less than was taken for them."""
        self._tool_tokens += tokens
        self._tool_cost_usd += cost_usd

    @property
    def of_tools(self) -> tuple[int, float]:
        """Tokens of models that tools have asked in the open turn, and their cost in US dollars."""
        return self._tool_tokens, self._tool_cost_usd

    def used_by(self, result: TurnResult) -> Spend:
        """What the open turn has used so far, by what is known of its call."""
        return after_turn(Spend(), self.with_spend(result))

    def known(self, spent: Spend, loop_spent: Spend) -> None:
        """The store's count of what was spent, with what is reserved for agents."""
        for one in {id(one): one for one in (self._run, *self._limited)}.values():
            one.spent = spent if one.of_run else loop_spent

    def lose_call(self, draft: Draft) -> None:
        """The call is lost, and will be made again. Raises BudgetError."""
        self._charge_retried(draft)
        usage = draft.usage
        self._lose(usage.total_tokens or self._call_tokens, usage.cost_usd if usage.total_tokens else None)
        self._afford_call()

    def charge_reply(self, draft: Draft) -> None:
        """The call is answered. If its vendor reports no usage, the estimate is charged."""
        self._charge_retried(draft)
        if not draft.usage.total_tokens and draft.usage.cost_usd is None:
            tokens = count_tokens(draft.text) + count_tokens(draft.thoughts)
            self._lose(self._call_tokens - REPLY_RESERVE_TOKENS + tokens)

    def _charge_retried(self, draft: Draft) -> None:
        for usage in draft.retried:
            self._lose(usage.total_tokens, usage.cost_usd)

    def _lose(self, tokens: int, cost_usd: float | None = None) -> None:
        """More tokens are lost; their cost is estimated if it is not known."""
        self._lost_tokens += tokens
        self._lost_cost_usd += price_of(tokens, self._run.spent) if cost_usd is None else cost_usd

    def _afford_call(self) -> None:
        for one in self._limited:
            tokens = self._call_tokens + self._lost_tokens
            cost_usd = price_of(self._call_tokens, self._run.spent) + self._lost_cost_usd
            _refuse(before_call(one.budget, one.spent, tokens, cost_usd, of_run=one.of_run))

    def with_spend(self, result: TurnResult) -> TurnResult:
        """The result of the open turn, including its working time, its lost calls and those of its tools."""
        return replace(
            result,
            work_ms=self.work_ms,
            lost_tokens=self._lost_tokens,
            lost_cost_usd=self._lost_cost_usd,
            tool_tokens=self._tool_tokens,
            tool_cost_usd=self._tool_cost_usd,
        )

    @property
    def work_ms(self) -> int:
        """Working time of the open turn, in milliseconds."""
        return max(1, round((self._clock_s() - self._turn_began_s) * 1000))

    def exhausted_by(self, result: TurnResult) -> str:
        """Why no turn may follow the open one if it ends like this; empty if one may. For the verdict."""
        for one in self._limited:
            spent = after_turn(one.spent, self.with_spend(result))
            if exhaustion := before_turn(one.budget, spent, of_run=one.of_run):
                return exhaustion.reason
        return ""

    def end_turn(self, result: TurnResult) -> None:
        self._run.spent = after_turn(self._run.spent, result)
        for one in self._limited:
            if one is not self._run:
                one.spent = after_turn(one.spent, result)


def _refuse(exhaustion: Exhaustion | None) -> None:
    if exhaustion:
        raise BudgetError(exhaustion)
