"""Interrupted commands whose outcome is unknown: what the model or a person is told.

The person gets a question with three answers; until then the effect is kept in the record:

    retry          carry it out again, as if it were accepted now
    mark done      settle as done
    anything else  settle as failed, with the answer for the model

If the question is rejected or expires, the outcome stays unknown, and the model is told so.

A command that its own owner stopped is no such command: it has failed, `stopped:499`.

Source: architecture 11 (indeterminate); decisions C26, C63.
"""

from __future__ import annotations

from typing import Final

from turnwright_values.types import ClientToolEffect, QuestionEffect

from turnwright_core.streams import STOPPED
from turnwright_executor.domain.command_record import CommandRecord, Done, failed
from turnwright_executor.domain.effects import EffectClass

RETRY: Final = "retry"
MARK_DONE: Final = "mark done"
MARK_FAILED: Final = "mark failed"

OUTCOME: Final = "indeterminate:500"
UNKNOWN: Final = failed(
    OUTCOME, "The runtime was interrupted while this ran. Look whether it happened before you do it again."
)
QUESTION: Final = "The runtime was interrupted while this ran. Nobody knows whether it happened: shall it run again?"


HANDED_OUT: Final = (
    "A client was to execute this, and had not answered. Look whether it happened before you do it again."
)
EFFECTS: Final = "It may have had effects: look before you do it again."
STOPPED_HERE: Final = failed(STOPPED, f"Stopped while it ran. {EFFECTS}")

ASKED: Final = QuestionEffect(QUESTION, (RETRY, MARK_DONE, MARK_FAILED))


def is_retried(record: CommandRecord) -> bool:
    """Whether an earlier attempt is in doubt, and somebody decided to try again."""
    return record.effect_class is EffectClass.OUTSIDE and record.comment.strip() == RETRY


def given_up(record: CommandRecord) -> Done:
    """The record if nobody will say any more what became of it: the result stays unknown."""
    is_handed_out = isinstance(record.effect, ClientToolEffect)
    return failed(OUTCOME, (HANDED_OUT if is_handed_out else UNKNOWN.body) + _comment_words(record.comment))


def _comment_words(comment: str) -> str:
    return f" They said: {comment}" if comment else ""


def apply_answer(record: CommandRecord) -> Done | None:
    """The record after an answer; None if its effect is to be carried out again."""
    answer = record.comment.strip()
    if answer == RETRY:
        return None
    if answer == MARK_DONE:
        return Done("It was interrupted, and somebody looked and marked it as done.")
    comment = _comment_words("" if answer == MARK_FAILED else answer)
    return failed(OUTCOME, f"It was interrupted, and somebody looked and marked it as failed.{comment}")
