"""VERDICT: collects the facts of a turn from its records, and runs the chain `turn.verdict`."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from contextlib import suppress
from posixpath import normpath

from msgspec.structs import replace
from turnwright_values.types import DecisionKind, LoopTally, Mode, State, TurnResult

from turnwright_core.runs import RUNNING
from turnwright_core.streams import STOPPED
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.encodings import FOREIGN
from turnwright_executor.domain.tally import changed_names, tally_after, tally_before
from turnwright_executor.domain.verdict import (
    ANSWER_INVALID,
    GO_ON,
    Limits,
    RecordFacts,
    Rejection,
    ReplyFacts,
    TurnFacts,
    Verdict,
    VerdictOverride,
    verdict_of,
)
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.points import TURN_VERDICT
from turnwright_executor.tools.ports import OutsideProjectError, Workspace
from turnwright_executor.turn.model_call import ModelCallRecord


async def judge(hooks: Hooks, facts: TurnFacts) -> Verdict:
    """The verdict of all voters, the runtime's and those of plugins. Never raises for an error of a voter."""
    vote, changed = await hooks.trace(TURN_VERDICT, GO_ON, facts)
    verdict = verdict_of(facts, vote)
    if changed is None or changed.by.is_rule:
        return verdict
    return replace(verdict, override=VerdictOverride(changed.by.plugin, changed.by.name, changed.before))


def limits_of(settings: ExecutorSettings) -> Limits:
    return Limits(
        strikes_max=settings.strikes_max,
        cycles_min=settings.cycles_min,
        cycle_period_max=settings.cycle_period_max,
        loop_turns_max=settings.loop_turns_max,
    )


def facts_of(
    at: TurnAddress,
    records: Sequence[CommandRecord],
    note: ModelCallRecord,
    narration: str,
    recent: Sequence[TurnResult],
    loop_turn: int,
    limits: Limits,
    exhausted: str = "",
    *,
    is_demoted: bool = False,
    is_answer_refused: bool = False,
    is_transcript: bool = False,
    tools: Container[str] = (),
    mode: Mode = Mode.UNSPECIFIED,
    tally: LoopTally | None = None,
) -> TurnFacts:
    """The facts of a turn whose records are settled; `note` is the record of its model call. Others as in TurnFacts.

    `is_demoted`: the results of the turn did not fit and were summarized, which is an error of no command (RU153).
    `tools` are all that exist; `tally` is what the loop has done.
    """
    return TurnFacts(
        records=tuple([_record_facts(record, tools) for record in records]),
        reply=ReplyFacts(any_command=bool(records), narration=narration, parse_failures=0 if records else note.losses),
        errors=(note.losses if records else 0) + is_demoted,
        fingerprint=note.result.fingerprint,
        recent=tuple(recent),
        loop_turn=loop_turn,
        rejection=_rejection([record for record in records if record.decision and record.rejection]),
        limits=limits,
        exhausted=exhausted,
        usage=note.result.usage,
        at=at,
        is_answer_refused=is_answer_refused or ANSWER_INVALID in [record.outcome for record in records],
        is_transcript=is_transcript,
        mode=mode,
        tally=tally or LoopTally(),
    )


def _record_facts(record: CommandRecord, tools: Container[str]) -> RecordFacts:
    status = record.attributes.get("status", RUNNING) if record.tool == "update" else RUNNING
    return RecordFacts(
        path=record.path,
        tool=record.tool,
        state=record.state,
        body=record.body,
        update_status=status if isinstance(status, int) else RUNNING,
        rejected=record.rejection is not None or record.outcome == STOPPED,
        is_unknown=record.tool not in tools,
        is_foreign=FOREIGN in record.attributes,
    )


def _rejection(rejected: Sequence[CommandRecord]) -> Rejection:
    if not rejected:
        return Rejection.NONE
    if any(record.decision and record.decision.kind is DecisionKind.EXPIRED for record in rejected):
        return Rejection.EXPIRED
    # The outcome of a native call is its result, which the model reads (C28).
    is_read = all(record.call_id for record in rejected) or any(record.comment for record in rejected)
    return Rejection.COMMENTED if is_read else Rejection.SILENT


async def tally_of(
    recent: Sequence[TurnResult],
    records: Sequence[CommandRecord],
    note: ModelCallRecord,
    offered: Collection[str],
    tools: Container[str],
    workspace: Workspace,
) -> LoopTally:
    """What the loop has done, the open turn included, whose records are settled. `offered` are the turn's tools."""
    before, names = tally_before(recent), {}
    if before.failed_paths or note.lost_changes or any(record.state is not State.RESOLVED for record in records):
        paths = changed_names(records) | {change.path for change in note.lost_changes if change.path}
        names = {path: await _name(path, workspace) for path in paths}
    return tally_after(
        before, records, tools, offered, names, unread=note.unread, ignored=note.ignored, lost=note.lost_changes
    )


async def _name(path: str, workspace: Workspace) -> str:
    """The normalized name of a file, whether or not a command may touch it."""
    with suppress(OutsideProjectError, OSError):
        return await workspace.normalise(path)
    return normpath(path)
