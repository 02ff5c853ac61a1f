"""Payloads of hooks: frozen, one class for each meaning.

A filter gets a value and a context. The value goes through the chain: each filter gets it and returns the next one. The
context can be read, but not changed. An event has one payload.
Source: rows RU041, RU042, RU131, RU148, RU155, RU252-RU254.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import Mode, State, Usage

from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.effects import Effect
from turnwright_executor.domain.policy import are_storable, check_refusal
from turnwright_grammar.reply import Command

# Proposals -------------------------------------------------------------------------------------------------------


class Proposal(Struct, frozen=True):
    """A pending or decided proposal. `yolo`: it is accepted without asking anybody."""

    at: TurnAddress
    path: str
    """Path of the record, `log://turn_N/{tool}/{slug}`."""
    tool: str
    command: Command
    effect: Effect
    yolo: bool = False


class Acceptance(Struct, frozen=True):
    """The value of `proposal.accepting`: whether a proposal may be accepted. The first veto ends the chain."""

    allow: bool = True
    outcome: str = ""
    body: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid veto."""
        if not self.allow:
            check_refusal(self.outcome, self.body)

    def vetoed(self, outcome: str, body: str) -> Acceptance:
        """A veto: the record fails with this outcome, and the model reads the body."""
        return Acceptance(allow=False, outcome=outcome, body=body)


class Content(Struct, frozen=True):
    """The value of `proposal.content`: the content of a file, once for each file of an accepted proposal.

    `text` is None if the file is to be deleted. A filter may change the text; refusing fails the record.
    """

    text: str | None
    outcome: str = ""
    body: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid refusal, or for content that no file can hold."""
        if self.outcome:
            check_refusal(self.outcome, self.body)
        if self.text is not None and not are_storable(self.text):
            raise ValueError("the content of a file is text that UTF-8 can hold, or None")

    @property
    def is_refused(self) -> bool:
        return bool(self.outcome)

    def refused(self, outcome: str, body: str) -> Content:
        """Refuse to provide content: the record fails with this outcome, and the model reads the body."""
        return replace(self, outcome=outcome, body=body)


class ProposedFile(Struct, frozen=True):
    """The context of `proposal.content`: one file of a proposal, relative to the project's root.

    `staged` is the proposed content, `edited` what the client sent with the acceptance; None: no such text.
    """

    proposal: Proposal
    path: str
    staged: str | None
    edited: str | None = None


class ProposalDecided(Struct, frozen=True):
    """The payload of `proposal.accepted` and `proposal.rejected`, sent once the decision is stored.

    `outcome` is empty for an acceptance; a veto has that of the filter. `comment` is the comment of the decision.
    """

    proposal: Proposal
    outcome: str = ""
    comment: str = ""


# Events of turns and loops ---------------------------------------------------------------------------------------


class LoopStarted(Struct, frozen=True):
    """The payload of `loop.started`: the first turn of a loop has begun."""

    at: TurnAddress
    mode: Mode
    prompt: str


class LoopCompleted(Struct, frozen=True):
    """The payload of `loop.completed`: how a loop ended. `at.turn` is its last turn, 0 if it had none."""

    at: TurnAddress
    status: int
    reason: str
    summary: str = ""


class TurnStarted(Struct, frozen=True):
    """The payload of `turn.started`: the turn's row is stored."""

    at: TurnAddress


class TurnResponse(Struct, frozen=True):
    """The payload of `turn.response`: the reply is complete, but not yet recorded."""

    at: TurnAddress
    text: str
    finish: str
    usage: Usage


class EntryCreated(Struct, frozen=True):
    """The payload of `entry.created`: a command is recorded, durable unless its reply is pure, and not dispatched."""

    at: TurnAddress
    path: str
    tool: str
    state: State
    outcome: str = ""


class TurnDispatched(Struct, frozen=True):
    """The payload of `turn.dispatched`: every command of the turn is settled. `states` are keyed by record path."""

    at: TurnAddress
    states: Mapping[str, State]


class TurnCompleted(Struct, frozen=True):
    """The payload of `turn.completed`: the turn has ended with this verdict; 102 if its loop goes on."""

    at: TurnAddress
    status: int
    reason: str
    strikes: int
    usage: Usage
