"""Every recorded reply of Gemini and of Ollama's own interface: the message is what was meant."""

import pytest

from cases import NEEDS_SHARED
from unit.provider.google_and_ollama import (
    BODIES,
    CASES,
    OK,
    STREAMS,
    expected,
    reply_of,
    told,
)

IN_PIECES = {i for i, case in OK.items() if any(not call["name"] for call in case["expected_tool_calls"])}
"""Streams of arguments in pieces: their cases count each piece as a call, and only the first of each has a name."""


@NEEDS_SHARED
def test_there_are_replies_of_every_kind():
    assert len(STREAMS) >= 15
    assert len(BODIES) >= 15
    assert {i.partition("/")[0] for i in CASES} >= {"gemini", "vertex", "ollama"}


@pytest.mark.parametrize("case_id", OK)
def test_a_recorded_reply_folds_to_its_message(case_id):
    message, wanted = told(reply_of(OK[case_id])), expected(OK[case_id])
    if case_id in IN_PIECES:
        wanted["calls"] = [name for _, name, _ in wanted["calls"] if name]
        message["calls"] = [name for _, name, _ in message["calls"]]
    assert message == wanted
