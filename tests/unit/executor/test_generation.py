"""A reply as it comes: what is left of it."""

from __future__ import annotations

from turnwright_core.deltas import ToolCall
from turnwright_core.runs import Usage
from turnwright_executor.turn.generation import Draft, empty


def test_nothing_of_a_reply_before_stays_in_an_emptied_draft():
    usage = Usage(prompt_tokens=1, total_tokens=1)
    draft = Draft(["a"], ["b"], (ToolCall("get", "{}"),), usage, "stop", 1, 2, 3, unmade_calls=4, work_ms=5, turn=6)
    draft.is_whole = True
    empty(draft, 0)
    assert draft == Draft()
    draft.unmade_calls = 2
    empty(draft, 0)
    assert draft == Draft(unmade_calls=2)
