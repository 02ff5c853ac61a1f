"""What became of a proposal, from the record that it was."""

from __future__ import annotations

from typing import Any, Final

from turnwright.types.v1 import entry_pb2, proposal_pb2

from turnwright_core.entries import Entry, State
from turnwright_core.wire.times import time_to_pb

_KINDS: Final = {
    "accept": proposal_pb2.DECISION_KIND_ACCEPTED,
    "reject": proposal_pb2.DECISION_KIND_REJECTED,
    "expire": proposal_pb2.DECISION_KIND_EXPIRED,
}
_REMOVED_OUTCOME: Final = "removed:410"


def decision_to_pb(path: str, record: Entry | None) -> proposal_pb2.ProposalDecision:
    """The decision that a record keeps; None stands for a record that is not there any more."""
    if record is None:
        return proposal_pb2.ProposalDecision(path=path, state=entry_pb2.STATE_CANCELLED, outcome=_REMOVED_OUTCOME)
    kept = record.attributes.get("decision")
    made: dict[str, Any] = kept if isinstance(kept, dict) else {}
    time_ms = made.get("time_ms", 0)
    return proposal_pb2.ProposalDecision(
        path=path,
        state=entry_pb2.State.ValueType(int(record.state)),
        outcome=record.outcome,
        kind=_KINDS.get(str(made.get("decision", "")), proposal_pb2.DECISION_KIND_UNSPECIFIED),
        principal=str(made.get("principal", "")),
        comment=str(made.get("comment", "")),
        decide_time=time_to_pb(time_ms if isinstance(time_ms, int) and record.state is not State.PROPOSED else 0),
        edited=bool(made.get("contents") or made.get("edited")),
    )
