"""All hooks: names, payloads, and what happens to the value if a filter fails.

A failure of a recording or proposal filter is a refusal, because its purpose may be to prevent something. A failure of
a voter is no vote.
Source: rows RU010, RU041, RU042, RU131, RU142, RU148, RU155, RU252-RU254.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from msgspec import Struct

from turnwright_executor.domain.policy import Recording, RecordingContext
from turnwright_executor.domain.verdict import TurnFacts, Vote
from turnwright_executor.hooks.payloads import (
    Acceptance,
    Content,
    EntryCreated,
    LoopCompleted,
    LoopStarted,
    Proposal,
    ProposalDecided,
    ProposedFile,
    TurnCompleted,
    TurnDispatched,
    TurnResponse,
    TurnStarted,
)

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
