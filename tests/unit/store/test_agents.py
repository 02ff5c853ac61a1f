"""What agents take of what the run that started them may spend."""

from turnwright_values.types import Budget, Spend

from turnwright_store.sql.agents import AgentRow, with_agents


def agent(*, most: Budget, spent: Spend | None = None) -> AgentRow:
    return AgentRow(1, 1, 2, 1, "log://turn_1/delegate/a", "a", False, most, spent, 102, 0, "", False, False)


def test_what_an_agent_at_work_may_spend_is_counted_and_told_apart_from_what_was_paid():
    most = Budget(turns_max=3, tokens_max=1000, cost_usd_max=2.0)
    own = Spend(turns=1, tokens=10, cost_usd=0.25)
    assert with_agents(own, [agent(most=most)]) == Spend(
        turns=4, tokens=1010, cost_usd=2.25, reserved_tokens=1000, reserved_cost_usd=2.0
    )
    paid = Spend(turns=2, tokens=30, cost_usd=0.5)
    assert with_agents(own, [agent(most=most, spent=paid)]) == Spend(turns=3, tokens=40, cost_usd=0.75)
