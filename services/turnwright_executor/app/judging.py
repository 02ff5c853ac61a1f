"""The verdict's facts, read off the records of a turn."""

from __future__ import annotations

from collections.abc import Sequence

from turnwright_core.runs import RUNNING, TurnResult
from turnwright_executor.app.records import Record
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.verdict import Limits, RecordFacts, Rejection, ReplyFacts, TurnFacts


def facts_of(
    records: Sequence[Record],
    reply: ReplyFacts,
    errors: int,
    fingerprint: str,
    recent: Sequence[TurnResult],
    settings: ExecutorSettings,
    loop_turn: int,
) -> TurnFacts:
    """The facts of a turn whose records are settled."""
    return TurnFacts(
        records=tuple(_record_facts(record) for record in records),
        reply=reply,
        errors=errors,
        fingerprint=fingerprint,
        recent=tuple(recent),
        loop_turn=loop_turn,
        rejection=_rejection(records),
        limits=Limits(
            max_strikes=settings.max_strikes,
            min_cycles=settings.min_cycles,
            max_cycle_period=settings.max_cycle_period,
            max_loop_turns=settings.max_loop_turns,
        ),
    )


def _record_facts(record: Record) -> RecordFacts:
    status = record.attributes.get("status", RUNNING) if record.tool == "update" else RUNNING
    return RecordFacts(
        path=record.path,
        tool=record.tool,
        state=record.state,
        body=record.body,
        update_status=status if isinstance(status, int) else RUNNING,
        rejected=record.rejection_comment is not None,
    )


def _rejection(records: Sequence[Record]) -> Rejection:
    comments = [comment for record in records if (comment := record.rejection_comment) is not None]
    if not comments:
        return Rejection.NONE
    return Rejection.COMMENTED if any(comments) else Rejection.SILENT
