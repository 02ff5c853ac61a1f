"""A reply as it comes: what is left of it."""

from __future__ import annotations

from turnwright_core.chat.deltas import MergeExtra, SetThinkingBlocks
from turnwright_core.chat.message import ThinkingBlock, ToolCall
from turnwright_core.runs import Usage
from turnwright_executor.turn.generation import Draft, empty


def test_nothing_of_a_reply_before_stays_in_an_emptied_draft():
    usage = Usage(prompt_tokens=1, total_tokens=1)
    draft = Draft(["a"], ["b"], (ToolCall("get", "{}"),), usage, finish="stop", bytes_=3, unmade_calls=4, turn=6)
    draft.add(SetThinkingBlocks((ThinkingBlock("thinking", 0),)))
    draft.add(MergeExtra('{"id": 1}'))
    draft.is_whole = True
    empty(draft, 0)
    assert draft == Draft()
    draft.unmade_calls = 2
    empty(draft, 0)
    assert draft == Draft(unmade_calls=2)
