"""A reply as it comes: what is left of it."""

from __future__ import annotations

from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.unsaved import UnsavedState


def test_a_turn_keeps_the_calls_that_were_not_made_and_nothing_else():
    unsaved = UnsavedState(1, Draft(["a"], finish="stop", unmade_calls=4, turn=6))
    assert unsaved.begin_reply(6) == Draft(unmade_calls=4, turn=6)
    assert unsaved.begin_reply(7) == Draft(turn=7)
