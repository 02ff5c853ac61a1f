"""A command that was interrupted, and of which nobody knows whether it happened: what the model or a person is told.

The person is asked a question with three answers. The effect stands by in the record until it is answered:

    retry          carried out once more, as if it were accepted now
    mark done      settled as done
    anything else  settled as failed, with the answer for the model

A question that is rejected, or that nobody answers in time, leaves it as it is: nobody knows, and the model reads that.

Source: architecture 11 (indeterminate); decision C26.
"""

from __future__ import annotations

from typing import Final

from turnwright_core.entries import State
from turnwright_executor.domain.effects import QuestionEffect, effect_to_json
from turnwright_executor.tools.contract import Done, failed
from turnwright_executor.turn.records import DECISION, DISPATCHED, EFFECT, Record

INTERRUPTED: Final = "interrupted"
"""Attribute of a record that holds the effect of which nobody knows whether it happened."""

RETRY: Final = "retry"
MARK_DONE: Final = "mark done"
MARK_FAILED: Final = "mark failed"

OUTCOME: Final = "indeterminate:500"
UNKNOWN: Final = failed(
    OUTCOME, "The runtime was interrupted while this ran. Look whether it happened before you do it again."
)
QUESTION: Final = "The runtime was interrupted while this ran. Nobody knows whether it happened: shall it run again?"


def ask(record: Record) -> None:
    """Make the record a proposal of what shall become of it."""
    question = QuestionEffect(QUESTION, (RETRY, MARK_DONE, MARK_FAILED))
    kept = {name: value for name, value in record.attributes.items() if name not in (DISPATCHED, DECISION)}
    record.attributes = {**kept, INTERRUPTED: kept[EFFECT], EFFECT: effect_to_json(question)}
    record.state, record.body = State.PROPOSED, QUESTION


def is_answered(record: Record) -> bool:
    """Whether somebody has said what shall become of it."""
    return record.is_accepted and INTERRUPTED in record.attributes


def is_unanswered(record: Record) -> bool:
    """Whether nobody says what became of it: the question was rejected, or its time is over."""
    return record.state.is_settled and INTERRUPTED in record.attributes


def give_up(record: Record) -> Done:
    """How a question settles the record that nobody answered: still nobody knows whether it happened."""
    record.attributes = {name: value for name, value in record.attributes.items() if name != INTERRUPTED}
    return failed(OUTCOME, UNKNOWN.body + _said(record.rejection_comment or ""))


def _said(comment: str) -> str:
    return f" They said: {comment}" if comment else ""


def take_answer(record: Record) -> Done | None:
    """How the answer settles the record; None when it shall be carried out again, as its effect then says."""
    answer = str(record.attributes[DECISION].get("comment", "")).strip()
    effect = record.attributes[INTERRUPTED]
    record.attributes = {name: value for name, value in record.attributes.items() if name != INTERRUPTED}
    if answer == RETRY:
        record.attributes[EFFECT] = effect
        return None
    if answer == MARK_DONE:
        return Done("It was interrupted, and somebody looked and marked it as done.")
    comment = _said("" if answer == MARK_FAILED else answer)
    return failed(OUTCOME, f"It was interrupted, and somebody looked and marked it as failed.{comment}")
