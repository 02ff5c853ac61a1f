"""What a run and a loop may still spend."""

import pytest
from turnwright_values.store import ClaimRunResponse
from turnwright_values.types import Budget, Loop, LoopSettings, Mode, Run, RunSettings, Spend, TurnResult, Usage

from turnwright_core.limits import REPLY_RESERVE_TOKENS
from turnwright_executor.domain.budgets import (
    BudgetKind,
    Exhaustion,
    after_turn,
    before_call,
    before_turn,
    exhaustion_in,
    over_time,
    price_of,
)
from turnwright_executor.turn.spend_meter import BudgetError, SpendMeter

SPENT = Spend(turns=3, tokens=900, cost_usd=0.5, wall_s=60.0)


@pytest.mark.parametrize(
    ("budget", "kind"),
    [
        (Budget(), None),
        (Budget(turns_max=4, tokens_max=901, cost_usd_max=0.51, wall_s_max=60.5), None),
        (Budget(turns_max=3), BudgetKind.TURNS),
        (Budget(tokens_max=900), BudgetKind.TOKENS),
        (Budget(cost_usd_max=0.5), BudgetKind.COST),
        (Budget(wall_s_max=60), BudgetKind.WALL),
    ],
)
def test_a_turn_begins_while_something_of_every_limit_is_left(budget, kind):
    found = before_turn(budget, SPENT, of_run=True)
    assert (found and found.kind) == kind


def test_a_limit_in_money_cannot_be_kept_where_no_price_is_reported():
    spent = Spend(turns=1, tokens=10, turns_without_cost=1)
    found = before_turn(Budget(cost_usd_max=100), spent, of_run=False)
    assert found == Exhaustion(
        BudgetKind.COST,
        False,
        "the loop has a limit of $100, and no price is known: `turnwright models add ALIAS vendor/model "
        "--price IN/CACHED/OUT` sets one",
    )
    assert before_turn(Budget(tokens_max=100), spent, of_run=False) is None


@pytest.mark.parametrize(
    ("need", "kind"),
    [
        ((100, 0.1), None),
        ((101, 0.1), BudgetKind.TOKENS),
        ((100, 0.11), BudgetKind.COST),
    ],
)
def test_a_call_is_made_when_what_it_may_take_fits_what_is_left(need, kind):
    found = before_call(Budget(tokens_max=1000, cost_usd_max=0.6), SPENT, *need, of_run=True)
    assert (found and found.kind) == kind
    assert before_call(Budget(), SPENT, 10**9, 10**9, of_run=True) is None


@pytest.mark.parametrize(
    "exhaustion",
    [
        before_turn(Budget(turns_max=3), SPENT, of_run=True),
        before_turn(Budget(tokens_max=3), SPENT, of_run=False),
        before_call(Budget(cost_usd_max=0.5), SPENT, 1, 0.1, of_run=True),
        over_time(Budget(wall_s_max=1.5), of_run=False),
    ],
)
def test_the_reason_of_a_loop_says_which_limit_was_reached(exhaustion):
    assert exhaustion_in(exhaustion.reason) == exhaustion
    assert exhaustion.reason.startswith(f"budget_exhausted:{exhaustion.kind.value}: ")


@pytest.mark.parametrize(
    "reason", ["", "update", "aborted", "budget_exhausted", "budget_exhausted:time: x", "x:turns: y"]
)
def test_another_reason_says_nothing_of_a_budget(reason):
    assert exhaustion_in(reason) is None


def test_the_price_of_tokens_is_that_of_those_before():
    assert price_of(90, SPENT) == pytest.approx(0.05)
    assert price_of(90, Spend()) == 0.0


def test_a_turn_adds_what_it_took_and_what_it_lost():
    usage = Usage(prompt_tokens=8, total_tokens=10, cost_usd=0.25)
    result = TurnResult(usage=usage, lost_tokens=5, lost_cost_usd=0.125, work_ms=1500)
    assert after_turn(SPENT, result) == Spend(
        turns=3, tokens=915, lost_tokens=5, cost_usd=0.875, turns_without_cost=0, wall_s=61.5, prompt_tokens=8
    )
    unpriced = TurnResult(usage=Usage(total_tokens=1))
    assert after_turn(SPENT, unpriced).turns_without_cost == 1
    assert after_turn(SPENT, TurnResult(lost_tokens=5)).turns_without_cost == 1
    assert after_turn(SPENT, TurnResult()) == SPENT


@pytest.fixture
def meter():
    """The meter of a loop that may spend 3000 tokens, with a clock that stands still until it is set."""
    loop = Loop(1, LoopSettings(Mode.ACT, budget=Budget(tokens_max=3000)), "x", 102)
    run = Run("p", "r", RunSettings("m"), 102)
    clock = [0.0]
    made = SpendMeter(ClaimRunResponse(run=run), loop, lambda: clock[0])
    made.begin_turn()
    return made, clock


def test_a_call_that_was_lost_is_charged_before_it_is_made_again(meter):
    meter, _ = meter
    meter.reserve(1000)
    with pytest.raises(BudgetError) as caught:
        meter.reserve(1000, lost_calls=1)
    detail = "the loop has spent 0 of 3000 tokens, and the next call may take 4048"
    assert caught.value.exhaustion == Exhaustion(BudgetKind.TOKENS, False, detail)
    assert meter.with_spend(TurnResult()).lost_tokens == 1000 + REPLY_RESERVE_TOKENS


def test_what_a_call_beside_the_turns_did_not_use_is_left_for_them(meter):
    meter, _ = meter
    cost_usd = meter.set_aside(2900)
    with pytest.raises(BudgetError):
        meter.reserve(500)
    meter.give_back(2900, cost_usd)
    meter.reserve(500)


def test_a_turn_is_charged_the_time_that_was_worked_on_it(meter):
    meter, clock = meter
    clock[0] = 1.5
    assert meter.with_spend(TurnResult()).work_ms == 1500
    clock[0] = 100.0
    meter.resume_turn(TurnResult(model_ms=250, lost_tokens=7, lost_cost_usd=0.5))
    clock[0] = 100.5
    charged = meter.with_spend(TurnResult())
    assert (charged.work_ms, charged.lost_tokens, charged.lost_cost_usd) == (750, 7, 0.5)


def test_what_ended_turns_took_is_missing_from_the_next(meter):
    meter, _ = meter
    meter.end_turn(TurnResult(usage=Usage(total_tokens=2999)))
    meter.begin_turn()
    meter.end_turn(TurnResult(usage=Usage(total_tokens=1)))
    assert meter.exhausted_by(TurnResult()).startswith("budget_exhausted:tokens: ")
    with pytest.raises(BudgetError):
        meter.begin_turn()


def test_what_is_reserved_for_agents_raises_no_price():
    """One who has reserved fifty dollars for agents has paid none of them."""
    reserved = Spend(tokens=1100, cost_usd=50.5, reserved_cost_usd=50.0, reserved_tokens=200)
    assert price_of(900, reserved) == pytest.approx(price_of(900, SPENT))
    assert price_of(900, Spend(tokens=200, cost_usd=50.0, reserved_cost_usd=50.0, reserved_tokens=200)) == 0.0
