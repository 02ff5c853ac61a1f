"""All hooks: names, payloads, and what happens to the value if a filter fails.

A filter gets a value and a context. The value goes through the chain: each filter gets it and returns the next one. The
context can be read, but not changed. An event has one payload. All are frozen, one class for each meaning.

A failure of a recording or proposal filter is a refusal, because its purpose may be to prevent something. A failure of
a voter is no vote.
Source: rows RU010, RU041, RU042, RU131, RU142, RU148, RU155, RU252-RU254.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import Mode, State, Usage

from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.effects import Effect
from turnwright_executor.domain.policy import Recording, RecordingContext, are_storable, check_refusal
from turnwright_executor.domain.verdict import TurnFacts, Vote
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


P = TypeVar("P")
V = TypeVar("V")
C = TypeVar("C")

FAILED_OUTCOME: Final = "hook_failed:500"
"""Outcome of a command whose filter failed."""


class EventHook(Struct, Generic[P], frozen=True):
    """An event. Observers are notified; what they return or raise changes nothing."""

    name: str
    payload: type[P]


class FilterHook(Struct, Generic[V, C], frozen=True):
    """A chain of filters for a value, with a fixed context.

    `ends`: whether a value ends the chain. `failed` makes the value after a failed filter, from the value before it and
    a sentence about the failure; without it the value stays as it was.
    """

    name: str
    value: type[V]
    context: type[C]
    ends: Callable[[V], bool] | None = None
    failed: Callable[[V, str], V] | None = None


ENTRY_RECORDING: Final = FilterHook(
    "entry.recording",
    Recording,
    RecordingContext,
    ends=lambda value: value.is_refused,
    failed=lambda value, sentence: value.refused(FAILED_OUTCOME, sentence),
)
TURN_VERDICT: Final = FilterHook("turn.verdict", Vote, TurnFacts)
PROPOSAL_ACCEPTING: Final = FilterHook(
    "proposal.accepting",
    Acceptance,
    Proposal,
    ends=lambda value: not value.allow,
    failed=lambda value, sentence: value.vetoed(FAILED_OUTCOME, sentence),
)
PROPOSAL_CONTENT: Final = FilterHook(
    "proposal.content",
    Content,
    ProposedFile,
    ends=lambda value: value.is_refused,
    failed=lambda value, sentence: value.refused(FAILED_OUTCOME, sentence),
)

LOOP_STARTED: Final = EventHook("loop.started", LoopStarted)
LOOP_COMPLETED: Final = EventHook("loop.completed", LoopCompleted)
TURN_STARTED: Final = EventHook("turn.started", TurnStarted)
TURN_RESPONSE: Final = EventHook("turn.response", TurnResponse)
ENTRY_CREATED: Final = EventHook("entry.created", EntryCreated)
TURN_DISPATCHED: Final = EventHook("turn.dispatched", TurnDispatched)
TURN_COMPLETED: Final = EventHook("turn.completed", TurnCompleted)
PROPOSAL_PENDING: Final = EventHook("proposal.pending", Proposal)
PROPOSAL_ACCEPTED: Final = EventHook("proposal.accepted", ProposalDecided)
PROPOSAL_REJECTED: Final = EventHook("proposal.rejected", ProposalDecided)

_FILTERS = (ENTRY_RECORDING, TURN_VERDICT, PROPOSAL_ACCEPTING, PROPOSAL_CONTENT)
_EVENTS = (
    LOOP_STARTED, LOOP_COMPLETED, TURN_STARTED, TURN_RESPONSE, ENTRY_CREATED, TURN_DISPATCHED, TURN_COMPLETED,
    PROPOSAL_PENDING, PROPOSAL_ACCEPTED, PROPOSAL_REJECTED,
)  # fmt: skip

FILTERS: Final[Mapping[str, FilterHook[object, object]]] = MappingProxyType({hook.name: hook for hook in _FILTERS})  # type: ignore[misc]
EVENTS: Final[Mapping[str, EventHook[object]]] = MappingProxyType({hook.name: hook for hook in _EVENTS})  # type: ignore[misc]
