from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turnwright_values.types import State, Visibility

from cases import load_cases
from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.domain.ladder import Rung, TokenBudget, climb
from unit.assembler.entries import block, blocks, entry

STATES = {100: State.RECORDED, 102: State.STREAMING, 200: State.RESOLVED}
CASES = load_cases("rummy/demotion.jsonl")
BIG = "w" * 2000


@dataclass(frozen=True)
class Sum:
    """A packet that costs what its blocks cost."""

    blocks: tuple[Block, ...]

    @property
    def tokens(self) -> int:
        return sum(each.s_tokens + each.is_visible * each.a_tokens for each in self.blocks)


def run(rows, ceiling, turn=5, prompt="prompt://5", calibration=0.0):
    return climb(Sum(rows), rows, turn, prompt, TokenBudget(ceiling, calibration), Sum)


def visibilities(packet):
    return {each.path: each.visibility.name.lower() for each in packet.blocks}


# RU215, RU064, RU177
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_previous_turn_is_summarized_and_keeps_its_status(case):
    rows = blocks(
        *(
            entry(
                row["path"], BIG, turn=row["turn"], state=STATES[row["status"]],
                visibility=Visibility[row["visibility"].upper()],
            )
            for row in case["input"]["rows"]
        )
    )  # fmt: skip
    climbed = run(rows, ceiling=Sum(rows).tokens - 1, turn=case["input"]["current_turn"], prompt=None)
    expected = case["expected"]
    assert visibilities(climbed.packet) == expected["visibility"]
    statuses = {each.path: f' status="{expected["status"][each.path]}"' in each.condensed for each in rows}
    assert set(statuses.values()) == {True}


# RU213
def test_a_packet_at_the_ceiling_is_left_alone():
    rows = blocks(entry("known://a", BIG, turn=4))
    climbed = run(rows, ceiling=Sum(rows).tokens)
    assert (climbed.packet.blocks, climbed.steps, climbed.overflow) == (rows, (), False)


# RU215, C34
def test_every_scheme_of_the_previous_turn_falls_and_nothing_else():
    previous = [
        "a.py", "known://a", "skill://a", "https://a", "sh://turn_4/a_1", "unknown://a", "log://turn_4/get/a",
        "update://a", "mine://a", "prompt://4",
    ]  # fmt: skip
    others = [("b.py", 3), ("known://b", 5), ("log://turn_2/get/b", 2), ("prompt://5", 5)]
    rows = blocks(
        *(entry(path, BIG, turn=4, loop=1) for path in previous),
        *(entry(path, BIG, turn=turn) for path, turn in others),
    )
    climbed = run(rows, ceiling=Sum(rows).tokens - 1)
    assert sorted(climbed.demoted) == sorted(previous)
    assert [step.rung for step in climbed.steps] == [Rung.PREVIOUS_TURN]


# RU215, C34
@pytest.mark.parametrize("category", ["plan", "hidden"])
def test_plans_and_events_never_fall(category):
    from msgspec.structs import replace

    rows = (replace(block("known://a", BIG, turn=4), category=category),)
    climbed = run(rows, ceiling=1)
    assert (climbed.demoted, climbed.overflow, climbed.packet.blocks) == ((), True, rows)


# RU215, C34
def test_the_category_is_that_of_the_scheme_whatever_an_entry_says_of_itself():
    rows = blocks(
        entry("plan://main", BIG, turn=4),
        entry("known://a", BIG, turn=4, category="plan"),
        entry("log://turn_4/get/a", BIG, turn=4, tool="get", category="hidden"),
    )
    climbed = run(rows, ceiling=Sum(rows).tokens - 1)
    assert climbed.demoted == ("known://a", "log://turn_4/get/a")


# RU216
def test_the_prompt_falls_when_the_previous_turn_was_not_enough():
    rows = blocks(entry("known://a", BIG, turn=4), entry("prompt://5", BIG, turn=5))
    floor = sum(each.s_tokens for each in rows)
    climbed = run(rows, ceiling=floor)
    assert [(step.rung, step.demoted) for step in climbed.steps] == [
        (Rung.PREVIOUS_TURN, ("known://a",)), (Rung.PROMPT, ("prompt://5",)),
    ]  # fmt: skip
    assert (climbed.overflow, climbed.packet.tokens) == (False, floor)


# RU216: not only on the loop's first turn, and after everything else of the previous turn.
def test_a_prompt_of_the_previous_turn_waits_for_its_own_step():
    rows = blocks(entry("known://a", BIG, turn=4), entry("prompt://4", BIG, turn=4))
    spared = run(rows, ceiling=Sum(rows).tokens - 1, prompt="prompt://4")
    assert spared.demoted == ("known://a",)
    both = run(rows, ceiling=sum(each.s_tokens for each in rows), prompt="prompt://4")
    assert both.demoted == ("known://a", "prompt://4")


# RL03, RU215: earlier turns had more room, as a transcript or with a larger window; the task is given up last.
def test_everything_of_earlier_turns_falls_when_the_previous_turn_was_not_enough():
    rows = blocks(
        entry("prompt://1", BIG, turn=1), entry("known://old", BIG, turn=2), entry("known://a", BIG, turn=4),
        entry("plan://main", BIG, turn=2), entry("known://new", BIG, turn=5),
    )  # fmt: skip
    previous = next(each for each in rows if each.turn == 4)
    climbed = run(rows, ceiling=Sum(rows).tokens - previous.a_tokens - 1, prompt="prompt://1")
    assert [(step.rung, step.demoted) for step in climbed.steps] == [
        (Rung.PREVIOUS_TURN, ("known://a",)), (Rung.EARLIER_TURNS, ("known://old",)),
    ]  # fmt: skip
    assert (climbed.steps[1].excess, climbed.overflow) == (1, False)


# RU217
def test_what_cannot_fit_overflows_and_says_by_how_much():
    rows = blocks(entry("known://a", BIG, turn=4), entry("known://old", BIG, turn=1), entry("prompt://5", BIG, turn=5))
    climbed = run(rows, ceiling=100)
    [last] = climbed.steps
    everything = ("known://a", "known://old", "prompt://5")
    assert (climbed.overflow, last.rung, last.demoted) == (True, Rung.OVERFLOW, everything)
    floor = sum(each.s_tokens for each in rows)
    assert (last.tokens, last.excess) == (floor, floor - 100)
    # What was tried is taken back: nothing is sent.
    assert (climbed.demoted, climbed.packet.blocks) == ((), rows)


# RU215
def test_a_step_that_finds_nothing_to_demote_is_not_taken():
    rows = blocks(entry("prompt://5", BIG, turn=5))
    climbed = run(rows, ceiling=sum(each.s_tokens for each in rows))
    assert [step.rung for step in climbed.steps] == [Rung.PROMPT]


# RU214, C16
def test_calibration_moves_the_comparison():
    rows = blocks(entry("known://a", BIG, turn=4))
    tokens = Sum(rows).tokens
    assert run(rows, ceiling=tokens, calibration=1.0).steps == ()
    assert run(rows, ceiling=tokens, calibration=1.5).demoted == ("known://a",)
    assert run(rows, ceiling=tokens // 2 + 1, calibration=0.5).steps == ()


# RU219: a fork's inherited rows keep their turn, so the same rule finds them on its first turn.
def test_inherited_rows_fall_like_the_runs_own():
    rows = blocks(entry("known://inherited", BIG, turn=7), entry("prompt://8", "task", turn=8))
    assert run(rows, ceiling=Sum(rows).tokens - 1, turn=8, prompt="prompt://8").demoted == ("known://inherited",)


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["known://", "src/", "unknown://", "log://turn_1/get/", "prompt://"]),
        st.integers(3, 6),
        st.sampled_from([Visibility.VISIBLE, Visibility.SUMMARIZED]),
        st.integers(0, 3000),
    ),
    max_size=12,
)


# RU213-RU218
@settings(deadline=None)
@given(rows=ROWS, ceiling=st.integers(1, 12_000))
def test_the_ladder_demotes_no_more_than_it_must(rows, ceiling):
    made = blocks(
        *(
            entry(f"{prefix}{n}", "x" * size, turn=turn, visibility=visibility, position=n)
            for n, (prefix, turn, visibility, size) in enumerate(rows)
        )
    )
    prompt = next((each.path for each in made if each.category == "prompt"), None)
    climbed = run(made, ceiling, prompt=prompt)
    turns = {each.path: each.turn for each in made}
    visible = {each.path for each in made if each.is_visible}
    assert all(path in visible and (turns[path] <= 4 or path == prompt) for path in climbed.demoted)
    for step in () if climbed.overflow else climbed.steps:
        assert step.rung is not Rung.PREVIOUS_TURN or {turns[path] for path in step.demoted} == {4}
        assert step.rung is not Rung.EARLIER_TURNS or {turns[path] for path in step.demoted} == {3}
    assert climbed.overflow is (climbed.packet.tokens > ceiling)
    assert bool(climbed.steps) is (Sum(made).tokens > ceiling)
    assert len(set(climbed.demoted)) == len(climbed.demoted)
