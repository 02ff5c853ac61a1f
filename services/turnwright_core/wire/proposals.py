"""Protobuf conversion of decisions on proposals, read from their records."""

from __future__ import annotations

from typing import Final

from turnwright.types.v1 import entry_pb2, proposal_pb2

from turnwright_core.decisions import DecisionKind
from turnwright_core.entries import Entry
from turnwright_core.wire.command_records import decision_in
from turnwright_core.wire.times import time_to_pb

_KINDS: Final = {
    DecisionKind.ACCEPTED: proposal_pb2.DECISION_KIND_ACCEPTED,
    DecisionKind.REJECTED: proposal_pb2.DECISION_KIND_REJECTED,
    DecisionKind.EXPIRED: proposal_pb2.DECISION_KIND_EXPIRED,
}
_REMOVED_OUTCOME: Final = "removed:410"


def decision_to_pb(path: str, record: Entry | None) -> proposal_pb2.ProposalDecision:
    """The decision in a record; None stands for a record that was removed."""
    if record is None:
        return proposal_pb2.ProposalDecision(path=path, state=entry_pb2.STATE_CANCELLED, outcome=_REMOVED_OUTCOME)
    decision = proposal_pb2.ProposalDecision(
        path=path, state=entry_pb2.State.ValueType(int(record.state)), outcome=record.outcome
    )
    if (made := decision_in(record.record)) is not None:
        decision.kind = _KINDS[made.ruling]
        decision.principal = made.principal
        decision.comment = made.comment
        decision.edited = bool(made.contents or made.edited)
        if (time := time_to_pb(made.time_ms)) is not None:
            decision.decide_time.CopyFrom(time)
    return decision
