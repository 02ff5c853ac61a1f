import json
from dataclasses import dataclass

import pytest
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier, Visibility

from turnwright_assembler.domain.blocks import Figures
from turnwright_assembler.domain.effects import PATHS_BYTES_MAX, PATHS_LISTED_MAX, effects_of, writer_for
from turnwright_assembler.domain.ladder import LadderResult, LadderStep, Rung
from turnwright_core.schemes import BUILTIN
from unit.assembler.entries import block

FIGURES = Figures(700, 300)
SUMMARIZED = SetEntry(visibility=Visibility.SUMMARIZED)


@dataclass(frozen=True)
class Cost:
    tokens: int


def effects(*steps, prompt=None, taken=()):
    climbed = LadderResult(Cost(700), steps)
    return effects_of(climbed, prompt, FIGURES, turn=5, loop=2, ceiling=1000, taken=taken)


def prompt(**attributes):
    return block("prompt://5", "task", loop=2, **attributes)


# C23
def test_the_first_packet_of_a_loop_stores_its_figures_on_the_prompt():
    [write] = effects(prompt=block("prompt://5", "task", mode="act"))
    change = SetEntry(attributes_json='{"mode":"act","tokenUsage":700,"tokensFree":300}')
    assert write == EntryWrite("prompt://5", change, Tier.PLUGIN)


# C23
def test_a_later_packet_writes_nothing():
    assert effects(prompt=prompt(tokenUsage=1, tokensFree=2)) == ()


# RU064, RU215: visibility only; state, turn and body are kept.
def test_a_demotion_changes_visibility_and_nothing_else():
    writes = effects(LadderStep(Rung.PREVIOUS_TURN, ("a.py", "known://a", "log://turn_4/get/x"), 1200, 200))
    assert writes[:3] == tuple(
        EntryWrite(path, SUMMARIZED, Tier.PLUGIN) for path in ("a.py", "known://a", "log://turn_4/get/x")
    )


# RU216
def test_a_prompt_that_falls_in_its_first_packet_is_written_once():
    step = LadderStep(Rung.PROMPT, ("prompt://5",), 1200, 200)
    first, error = effects(step, prompt=block("prompt://5", "task"))
    change = SetEntry(attributes_json='{"tokenUsage":700,"tokensFree":300}', visibility=Visibility.SUMMARIZED)
    assert (first, error.path) == (EntryWrite("prompt://5", change, Tier.PLUGIN), "log://turn_5/error/budget_prompt")
    later, _ = effects(step, prompt=prompt(tokenUsage=1, tokensFree=2))
    assert later == EntryWrite("prompt://5", SUMMARIZED, Tier.PLUGIN)


# RU217, RU218
def test_every_step_leaves_an_error_record():
    writes = effects(
        LadderStep(Rung.PREVIOUS_TURN, ("a.py",), 1500, 500),
        LadderStep(Rung.PROMPT, ("prompt://5",), 1300, 300),
        LadderStep(Rung.OVERFLOW, ("a.py", "prompt://5"), 1100, 100),
        prompt=prompt(tokenUsage=1, tokensFree=2),
    )
    errors = [write for write in writes if write.path.startswith("log://")]
    assert [write.path for write in errors] == [
        "log://turn_5/error/budget_previous_turn", "log://turn_5/error/budget_prompt",
        "log://turn_5/error/budget_overflow",
    ]  # fmt: skip
    for write in errors:
        assert (write.writer, write.turn, write.loop) == (Tier.PLUGIN, 5, 2)
        assert (write.change.state, write.change.outcome) == (State.FAILED, "budget:413")
        assert write.change.visibility is Visibility.VISIBLE
    shared = '{"tool":"error","target":"budget","step":'
    assert [error.change.attributes_json for error in errors] == [
        f'{shared}2,"summarized":["a.py"]}}', f'{shared}3,"summarized":["prompt://5"]}}', f"{shared}4}}",
    ]  # fmt: skip
    last = errors[2].change.body
    assert last.startswith("The packet of turn 5 had 1100 tokens, 100 over the ceiling of 1000.")
    assert last.endswith("\n* a.py\n* prompt://5")


def test_an_error_entry_does_not_grow_without_bound():
    demoted = tuple(f"known://{n}" for n in range(1000))
    change = effects(LadderStep(Rung.PREVIOUS_TURN, demoted, 1500, 500))[-1].change
    body, told = change.body, json.loads(change.attributes_json)
    assert tuple(told["summarized"]) == demoted
    long = tuple(f"known://{n}/{'x' * 2000}" for n in range(1000))
    change = effects(LadderStep(Rung.PREVIOUS_TURN, long, 1500, 500))[-1].change
    assert 500_000 < len(change.attributes_json) <= PATHS_BYTES_MAX + 100
    assert body.count("\n") == PATHS_LISTED_MAX + 1
    assert body.endswith("\n* and 900 more")


def test_an_overflow_that_demoted_nothing_says_so():
    [write] = effects(LadderStep(Rung.OVERFLOW, (), 1500, 500))
    assert write.change.body.endswith("* nothing: no entry was left to summarize")


def test_a_second_error_of_a_turn_gets_a_path_of_its_own():
    step = LadderStep(Rung.OVERFLOW, (), 1500, 500)
    first = "log://turn_5/error/budget_overflow"
    assert effects(step, taken={first, f"{first}+2"})[0].path == f"{first}+3"


# C9
@pytest.mark.parametrize("scheme", BUILTIN, ids=lambda scheme: scheme.name or "file")
def test_a_write_names_a_tier_that_the_scheme_lists(scheme):
    assert writer_for(scheme.name) in scheme.writable_by
    if Tier.PLUGIN in scheme.writable_by:
        assert writer_for(scheme.name) is Tier.PLUGIN
