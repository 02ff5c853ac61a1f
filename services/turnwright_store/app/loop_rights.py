"""What the people behind a loop may do now: who asked for it, and who accepted what it proposed.

A loop works for somebody, also when that person is away, so each model call and each effect asks once more. Of work of
earlier releases nobody knows whose it is, and it goes on. Source: architecture 10; docs/adr/0066.
"""

from __future__ import annotations

from typing import Final

from turnwright.types.v1 import command_record_pb2
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.types import Right

from turnwright_core.errors import Reason, fault
from turnwright_kit.identity.policy import word_of
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.domain.viewers import asker_of, caller_of
from turnwright_store.sql.runs import RunHead

OF_ENTRIES: Final = (command_record_pb2.EFFECT_CLASS_PURE, command_record_pb2.EFFECT_CLASS_IDEMPOTENT)
"""Effects on entries and project files alone."""


def check_works(rules: StoreRules, run: RunHead) -> None:
    """Raises RIGHT_MISSING where whoever asked for the active loop of a run may have nothing run there any more."""
    _check(rules, run.project, run.asked_by, Right.RUN, "has asked for this loop")


def check_asker(rules: StoreRules, project: str, by: str) -> None:
    """The same, of a loop that somebody has asked for beforehand."""
    _check(rules, project, by, Right.RUN, "has set this")


def check_decider(rules: StoreRules, run: RunHead, record: CommandRecord) -> None:
    """Raises RIGHT_MISSING where whoever accepted an effect may not accept it any more."""
    right = Right.DECIDE if record.effect_class in OF_ENTRIES else Right.COMMAND
    _check(rules, run.project, record.dispatched.decision.decider, right, "has accepted this")


def may_affect(rules: StoreRules, run: RunHead, record: CommandRecord) -> bool:
    """Whether whoever asked for the active loop of a run may do there what a record is about to do."""
    right = Right.COMMAND
    if record.effect_class in OF_ENTRIES:
        if not record.dispatched.effect.HasField("files"):
            return True
        right = Right.FILES
    return _has(rules, run.project, run.asked_by, right)


def _has(rules: StoreRules, project: str, by: str | None, right: Right) -> bool:
    """Raises SERVICE_UNAVAILABLE where this store does not know yet who may do what."""
    person = asker_of(by)
    if person is None or person.root or rules.policy is None:
        return True
    rules.policy.check_known()
    return rules.policy.has(caller_of(person), right, project)


def _check(rules: StoreRules, project: str, by: str | None, right: Right, what: str) -> None:
    if not _has(rules, project, by, right):
        person, word = asker_of(by), word_of(right)
        name = person.name if person else ""
        message = (
            f"{name} {what}, and does not have `{word}` in the project {project} any more. Ask somebody who has it, "
            f"or an owner of the project to give it back to {name}."
        )
        raise fault(Reason.RIGHT_MISSING, message, right=word, project=project)
