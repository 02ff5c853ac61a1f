"""The verdict over a turn. Rows RU005, RU010-RU012, RU140, RU141, RU152, RU249, RU250, RU277-RU281."""

import asyncio
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright_values.types import State, TurnResult

from cases import load_cases
from turnwright_core.runs import run_status_after
from turnwright_executor.domain.verdict import (
    Limits,
    RecordFacts,
    Rejection,
    ReplyFacts,
    TurnFacts,
    Verdict,
    Vote,
    cycle_period,
)
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.points import TURN_VERDICT
from turnwright_executor.hooks.registry import Registry, new_registry
from turnwright_executor.turn import judging
from turnwright_executor.turn.model_call import fingerprint

from .commands import built

UNIQUE = count()


RULES = Hooks(new_registry())


def judge(facts_: TurnFacts, registry: Registry | None = None) -> Verdict:
    """The verdict of the chain, as a loop asks for it."""
    if registry:
        return asyncio.run(judging.judge(Hooks(registry), facts_))
    with pytest.raises(StopIteration) as ended:
        judging.judge(RULES, facts_).send(None)  # the runtime's own rules wait for nothing
    return ended.value.value


def update(status: int, state: State = State.RESOLVED, body: str = "text") -> RecordFacts:
    return RecordFacts("log://turn_1/update/1", "update", state, body, status)


def action(state: State = State.RESOLVED, *, rejected: bool = False) -> RecordFacts:
    return RecordFacts("log://turn_1/get/a", "get", state, rejected=rejected)


def facts(*records: RecordFacts, **others) -> TurnFacts:
    """The facts of a turn that is like no other unless told."""
    settled = {
        "reply": ReplyFacts(any_command=bool(records)),
        "errors": 0,
        "fingerprint": f"unique {next(UNIQUE)}",
        "recent": (),
        "loop_turn": 1,
    }
    return TurnFacts(records=records, **(settled | others))


def text(narration: str, parse_failures: int = 0) -> ReplyFacts:
    return ReplyFacts(any_command=False, narration=narration, parse_failures=parse_failures)


FAILED = action(State.FAILED)


@pytest.mark.parametrize("status", [200, 204, 422])
def test_a_terminal_update_ends_the_loop(status):
    verdict = judge(facts(action(), update(status, body="All done.")))
    assert (verdict.continue_, verdict.status, verdict.summary) == (False, status, "All done.")


def test_an_update_102_goes_on():
    assert judge(facts(update(102))).continue_


def test_the_last_of_several_updates_wins():
    assert judge(facts(update(200), update(102))).continue_
    assert judge(facts(update(102), update(204))).status == 204


def test_commands_without_an_update_go_on():
    verdict = judge(facts(action()))
    assert (verdict.continue_, verdict.status) == (True, 102)


@pytest.mark.parametrize("state", [State.RESOLVED, State.CANCELLED])
def test_200_after_a_failure_is_refuted(state):
    verdict = judge(facts(FAILED, update(200, state)))
    assert (verdict.continue_, verdict.status, verdict.reason) == (True, 102, "refuted")
    assert verdict.update_override == "log://turn_1/update/1"
    assert verdict.strikes == 1


@pytest.mark.parametrize("status", [204, 422])
def test_204_and_422_stand_after_a_failure(status):
    verdict = judge(facts(FAILED, update(status)))
    assert (verdict.continue_, verdict.status, verdict.update_override) == (False, status, None)


def test_a_plain_answer_ends_the_loop_with_its_text():
    verdict = judge(facts(reply=text("  Because of the cache. ")))
    assert (verdict.continue_, verdict.status, verdict.summary) == (False, 200, "Because of the cache.")


def test_a_plain_answer_in_which_something_failed_to_parse_goes_on_with_a_strike():
    verdict = judge(facts(reply=text("Let me see <get", parse_failures=1)))
    assert (verdict.continue_, verdict.strikes) == (True, 1)


@pytest.mark.parametrize("narration", ["", " \n"])
def test_an_empty_reply_is_a_strike(narration):
    verdict = judge(facts(reply=text(narration)))
    assert (verdict.continue_, verdict.status, verdict.strikes) == (True, 102, 1)


def test_text_beside_a_command_ends_nothing():
    reply = ReplyFacts(any_command=True, narration="Let me check:")
    assert judge(facts(action(), reply=reply)).continue_


@pytest.mark.parametrize(
    ("errors", "records"), [(1, (action(),)), (0, (FAILED,))], ids=["error entry", "failed action"]
)
def test_an_error_or_a_failed_command_is_a_strike(errors, records):
    assert judge(facts(*records, errors=errors)).strikes == 1


@pytest.mark.parametrize(("others", "strikes"), [((), 0), ((FAILED,), 1)])
def test_an_encoding_that_nobody_could_know_is_no_strike(others, strikes):
    foreign = RecordFacts("log://turn_1/get/a", "get", State.FAILED, is_foreign=True)
    assert judge(facts(foreign, *others)).strikes == strikes


def test_a_cancelled_follower_is_no_strike_of_its_own():
    assert judge(facts(action(State.CANCELLED))).strikes == 0


def test_a_clean_turn_resets_the_streak():
    assert judge(facts(action(), recent=(TurnResult(strikes=2),))).strikes == 0
    assert judge(facts(FAILED, recent=(TurnResult(strikes=1),))).strikes == 2


def test_too_many_strikes_abandon_the_loop_at_499():
    verdict = judge(facts(FAILED, recent=(TurnResult(strikes=2),)))
    assert (verdict.continue_, verdict.status, verdict.reason, verdict.strikes) == (False, 499, "strikes", 3)


def test_strikes_do_not_overrule_a_terminal_update():
    assert judge(facts(FAILED, update(422), recent=(TurnResult(strikes=2),))).status == 422


def test_the_limit_of_turns_ends_the_loop_at_499():
    limits = Limits(loop_turns_max=5)
    assert judge(facts(action(), loop_turn=4, limits=limits)).continue_
    verdict = judge(facts(action(), loop_turn=5, limits=limits))
    assert (verdict.continue_, verdict.status, verdict.reason) == (False, 499, "loop_turns")


@pytest.mark.parametrize(
    "records", [(), (update(102),), (update(200),), (FAILED,)], ids=["none", "102", "200", "failed"]
)
def test_a_rejection_without_a_comment_ends_the_loop_and_completes_the_run(records):
    verdict = judge(facts(action(State.FAILED, rejected=True), *records, rejection=Rejection.SILENT))
    assert (verdict.continue_, verdict.status, verdict.reason) == (False, 499, "rejected")
    assert run_status_after(verdict.status, verdict.reason) == 200


@pytest.mark.parametrize("records", [(), (update(102),), (update(200),)], ids=["none", "102", "200"])
def test_a_proposal_that_nobody_decided_ends_the_loop_as_expired_and_completes_the_run(records):
    verdict = judge(facts(action(State.CANCELLED, rejected=True), *records, rejection=Rejection.EXPIRED))
    assert (verdict.continue_, verdict.status, verdict.reason, verdict.strikes) == (False, 499, "expired", 0)
    assert run_status_after(verdict.status, verdict.reason) == 200


@pytest.mark.parametrize("status", [102, 200, 204, 422])
def test_a_rejection_with_a_comment_gives_another_turn_and_no_strike(status):
    rejected = action(State.FAILED, rejected=True)
    verdict = judge(facts(rejected, update(status), rejection=Rejection.COMMENTED, recent=(TurnResult(strikes=2),)))
    assert (verdict.continue_, verdict.strikes) == (True, 0)


def test_another_filter_can_overrule_the_rules():
    registry = new_registry()
    registry.of("veto").filter(TURN_VERDICT, lambda vote, facts_: Vote(False, 500, "veto"), 35)
    verdict = judge(facts(action()), registry)
    assert (verdict.continue_, verdict.status, verdict.reason) == (False, 500, "veto")


def test_filters_vote_by_priority_and_not_by_place():
    seen, registry = [], Registry()

    def named(name):
        return lambda vote, facts_: seen.append(name) or vote

    for priority, name in ((9, "b"), (1, "a"), (9, "c")):
        registry.of("p").filter("turn.verdict", named(name), priority)
    judge(facts(action()), registry)
    assert seen == ["a", "b", "c"]


def test_a_voter_that_fails_has_not_voted():
    def broken(vote, facts_):
        raise RuntimeError("no")

    registry = new_registry()
    registry.of("p").filter(TURN_VERDICT, broken)
    registry.of("p").filter(TURN_VERDICT, lambda vote, facts_: None)
    registry.of("p").filter(TURN_VERDICT, lambda vote, facts_: Vote(True, 200))
    assert judge(facts(update(204)), registry) == judge(facts(update(204)))


def test_an_exhausted_budget_ends_a_loop_that_would_go_on():
    verdict = judge(facts(action(), exhausted="budget_turns: 5 of 5 turns"))
    assert (verdict.continue_, verdict.status, verdict.reason) == (False, 499, "budget_turns: 5 of 5 turns")
    assert judge(facts(update(200), exhausted="budget_turns: 5 of 5 turns")).status == 200


def test_a_voter_at_the_default_place_cannot_lift_the_limit_of_turns():
    registry = new_registry()
    registry.of("optimist").filter(TURN_VERDICT, lambda vote, facts_: Vote(True, 102))
    assert judge(facts(action(), loop_turn=99), registry).status == 499


@pytest.mark.parametrize(
    "vote", [(True, 200), (False, 102), (False, 202), (False, 200.0), (True, 102, "x" * 201), (True, 102, "a\nb")]
)
def test_a_vote_that_no_loop_can_follow_cannot_be_made(vote):
    with pytest.raises(ValueError):
        Vote(*vote)


# ---- Cycles

LIMITS = {"min_cycles": "cycles_min", "max_cycle_period": "cycle_period_max", "max_strikes": "strikes_max"}
"""The names of limits in the cases, and ours."""

CYCLES = load_cases("rummy/cycles_and_strikes.jsonl")


@pytest.mark.parametrize("case", CYCLES, ids=[case["id"] for case in CYCLES])
def test_cycles_strikes_and_ends_come_where_the_cases_say(case):
    limits = Limits(**{LIMITS[name]: limit for name, limit in case["input"]["config"].items()})
    results: list[TurnResult] = []
    first_cycle = period = abandoned = terminal = None
    for number, turn in enumerate(case["input"]["turns"], 1):
        commands = [built(name, attributes) for name, attributes in turn["recorded"]]
        records = tuple(
            update(command.attributes["status"] and int(command.attributes["status"]))
            if command.name == "update"
            else action()
            for command in commands
        )
        turn_facts = facts(
            *records, fingerprint=fingerprint(commands), recent=tuple(results), loop_turn=number, limits=limits,
            errors=turn.get("errors", 0),
        )  # fmt: skip
        verdict = judge(turn_facts)
        if turn_facts.period and first_cycle is None:
            first_cycle, period = number, turn_facts.period
        if not verdict.continue_:
            abandoned, terminal = (number, terminal) if verdict.status == 499 else (abandoned, number)
            break
        results.append(TurnResult(strikes=verdict.strikes, fingerprint=turn_facts.fingerprint))
    found = {
        "first_cycle_turn": first_cycle,
        "period": period,
        "abandon_turn": abandoned,
        "terminal_turn": terminal,
    }
    expected = case["expected"]
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("period", [1, 2, 3, 4])
def test_a_cycle_counts_from_the_third_repetition(period):
    block = [f"turn {number}" for number in range(period)]
    assert cycle_period((block * 3)[:-1], 3, 4) == 0
    assert cycle_period(["before", *block * 3], 3, 4) == period


def test_longer_periods_are_no_cycle():
    assert cycle_period(list("abcde") * 3, 3, 4) == 0


def test_empty_turns_count_as_equal():
    assert cycle_period([fingerprint([])] * 3, 3, 4) == 1


def test_a_cycle_is_a_strike_without_any_error_and_abandons_the_loop():
    same, results = fingerprint([built("get", {"path": "a"})]), []
    for number in range(1, 6):
        verdict = judge(facts(action(), fingerprint=same, recent=tuple(results), loop_turn=number))
        results.append(TurnResult(strikes=verdict.strikes, fingerprint=same))
    assert [result.strikes for result in results] == [0, 0, 1, 2, 3]
    assert (verdict.continue_, verdict.status, verdict.reason) == (False, 499, "cycles")


def test_the_fingerprint_sees_commands_attributes_and_bodies():
    base = built("set", {"path": "a", "visibility": "visible"}, "x")
    others = [
        built("set", {"path": "b", "visibility": "visible"}, "x"),
        built("set", {"path": "a"}, "x"),
        built("set", {"path": "a", "visibility": "visible"}, "y"),
        built("rm", {"path": "a", "visibility": "visible"}, "x"),
    ]
    assert len({fingerprint([command]) for command in (base, *others)}) == 5
    assert fingerprint([base]) == fingerprint([built("set", {"visibility": "visible", "path": "a"}, "x")])
    assert fingerprint([base, others[0]]) != fingerprint([others[0], base])


def test_prose_does_not_hide_a_cycle():
    turns = [[built("update", {"status": 102}, words), built("think", {}, words)] for words in ("Once", "Again")]
    assert fingerprint(turns[0]) == fingerprint(turns[1])


# ---- What holds for every turn

RECORDS = st.builds(
    RecordFacts,
    path=st.just("log://turn_1/x/y"),
    tool=st.sampled_from(["get", "sh", "update"]),
    state=st.sampled_from([State.RESOLVED, State.FAILED, State.CANCELLED]),
    update_status=st.sampled_from([102, 200, 204, 422]),
    rejected=st.booleans(),
)
FACTS = st.builds(
    TurnFacts,
    records=st.lists(RECORDS, max_size=5).map(tuple),
    reply=st.builds(ReplyFacts, any_command=st.booleans(), narration=st.text(max_size=3)),
    errors=st.integers(0, 2),
    fingerprint=st.sampled_from("abc"),
    recent=st.lists(
        st.builds(TurnResult, strikes=st.integers(0, 2), fingerprint=st.sampled_from("abc")), max_size=12
    ).map(tuple),
    loop_turn=st.integers(1, 120),
    rejection=st.sampled_from(list(Rejection)),
)


@given(FACTS)
def test_a_loop_goes_on_at_102_and_ends_at_another_status(facts_):
    verdict = judge(facts_)
    assert verdict.continue_ is (verdict.status == 102)
    assert verdict.status in {102, 200, 204, 422, 499}


@given(FACTS)
def test_no_loop_goes_on_beyond_its_limits(facts_):
    verdict = judge(facts_)
    if verdict.continue_:
        assert verdict.strikes < facts_.limits.strikes_max
        assert facts_.loop_turn < facts_.limits.loop_turns_max
        assert facts_.rejection not in (Rejection.SILENT, Rejection.EXPIRED)


@given(FACTS)
def test_no_loop_ends_at_200_over_a_failed_command(facts_):
    failed = any(record.state is State.FAILED for record in facts_.records)
    verdict = judge(facts_)
    if failed and facts_.reply.any_command:
        update_failed = facts_.update is not None and facts_.update.state is State.FAILED
        assert verdict.status != 200 or update_failed
