"""Records: a command as the ledger holds it, `log://turn_N/{tool}/{slug}`.

Source: rows RU075, RU128, RU149; decisions C10, C12, C26.
"""

from __future__ import annotations

from typing import Any

from turnwright_core.entries import Entry, EntryWrite, SetEntry, State, Tier, Visibility, to_attributes_json
from turnwright_core.values import mutable
from turnwright_executor.domain.effect_class import EFFECT_CLASS, EffectClass
from turnwright_executor.domain.records import command_from_record
from turnwright_executor.tools.contract import Done
from turnwright_grammar import Command

DISPATCHED = "dispatched"
"""Attribute of a record whose effect on the world has begun: after a crash nobody can say how far it came."""

ORDINAL = "ordinal"
"""Attribute of a command's record: its place in the reply, from 0."""

EFFECT = "effect"
"""Attribute that holds the effect of a proposal, until it is carried out."""

DECISION = "decision"
"""Attribute that holds the decision on a proposal."""

CONTENTS = "contents"
"""Field of a decision: what somebody wants to be written instead, by path, until the effect has it."""

OWNER = "owner"
"""Attribute of a client's record: the executor that carries the command out, until it has ended; empty: nobody does."""

EXPIRED = "expire"
"""Decision that nobody made in time (see the store's proposal_expire_s)."""

REJECTIONS = ("reject", EXPIRED)
"""Decisions that keep an effect from happening; nobody's silence is one."""


@mutable
class Record:
    """One command of the open turn. Mutable: the ledger's row is written from it."""

    path: str
    tool: str
    command: Command
    attributes: dict[str, Any]
    state: State
    outcome: str = ""
    body: str = ""

    def settle(self, done: Done) -> None:
        """Take the outcome of the command. The effect has been carried out or will not be: it goes."""
        self.state, self.outcome, self.body = done.state, done.outcome, done.body
        self.attributes = {
            key: value for key, value in self.attributes.items() if key not in (EFFECT, DISPATCHED, OWNER)
        } | dict(done.attributes)

    @property
    def effect_class(self) -> EffectClass:
        """What it means that the command was interrupted; a record that does not say so is not tried again."""
        return EffectClass(self.attributes.get(EFFECT_CLASS, EffectClass.OUTSIDE.value))

    @property
    def is_accepted(self) -> bool:
        """Whether somebody accepted its proposal and nobody has carried it out."""
        decision = self.attributes.get(DECISION) or {}
        return self.state is State.RECORDED and decision.get("decision") == "accept" and EFFECT in self.attributes

    @property
    def is_expired(self) -> bool:
        """Whether nobody decided on its proposal in time."""
        return (self.attributes.get(DECISION) or {}).get("decision") == EXPIRED

    @property
    def rejection_comment(self) -> str | None:
        """The comment of a rejection, empty when it had none; None when it was not rejected."""
        decision = self.attributes.get(DECISION) or {}
        return str(decision.get("comment", "")) if decision.get("decision") in REJECTIONS else None


def is_command(entry: Entry) -> bool:
    """Whether an entry below a turn's records is that of a command; errors and messages stand there too."""
    return ORDINAL in entry.attributes and is_ours(entry)


def is_ours(entry: Entry) -> bool:
    """Whether a record may be carried out, or is over.

    `log://` is open to models and plugins too: an open record of theirs might name an effect that nobody proposed, and
    a decision that nobody made.
    """
    return entry.state.is_settled or entry.writer is Tier.SYSTEM


def record_from_entry(entry: Entry) -> Record:
    """A record as the ledger holds it; one that was too large to be kept has an empty command and is settled."""
    attributes = entry.attributes
    command = command_from_record(attributes) if "command" in attributes else Command(attributes["tool"])
    return Record(entry.path, attributes["tool"], command, attributes, entry.state, entry.outcome, entry.body)


def record_write(record: Record) -> EntryWrite:
    """The write that brings the ledger's row to what the record says."""
    # To the store a set to RECORDED is a new record, which never takes the place of another one.
    state = State.UNSPECIFIED if record.state is State.RECORDED else record.state
    return EntryWrite(
        record.path,
        SetEntry(
            body=record.body,
            attributes_json=to_attributes_json(record.attributes),
            state=state,
            outcome=record.outcome,
        ),
        writer=Tier.SYSTEM,
    )


def error_write(path: str, outcome: str, body: str) -> EntryWrite:
    """A failure that no command can carry (RU153): `path` is `log://turn_N/error/{slug}`."""
    return EntryWrite(
        path,
        SetEntry(
            body=body,
            attributes_json=to_attributes_json({"tool": "error"}),
            visibility=Visibility.VISIBLE,
            state=State.FAILED,
            outcome=outcome,
        ),
        writer=Tier.SYSTEM,
    )
