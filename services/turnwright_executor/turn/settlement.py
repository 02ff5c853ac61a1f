"""Ending a loop from outside its turns: it was aborted, or it cannot go on.

Everything open is settled in one write, whatever state the loop was in; the text that the model had written so far is
kept. What a command is told as follows from the table of the turn (machine.LAST), whatever the ending.
Source: architecture 11; rows RU004, RU111, RU154, RU217, RU220; decisions C6, C27, C36, C63; RC06.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace
from turnwright_values.store import ClaimRunResponse, EndTurnRequest, EntryWrite, LoopEnd, SetEntry
from turnwright_values.types import Entry, FileEffect, State, Tier, TurnResult

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.events import event_write
from turnwright_core.limits import REASON_BYTES_MAX, REPLY_RESERVE_TOKENS
from turnwright_core.runs import FAILED, PROPOSED, RUNNING, run_status_after
from turnwright_core.streams import PRODUCER_LOST, channel_path
from turnwright_core.text import cut_bytes
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord, Done, failed
from turnwright_executor.domain.endings import ABORT, CRASH_LOOP, GONE, Ending, is_transient
from turnwright_executor.domain.records import error_path
from turnwright_executor.domain.run_events import command_lost, crashes_given_up, loop_aborted
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.tools.client_tools import submitted_result
from turnwright_executor.turn import indeterminate
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.machine import LAST, Action, LocalStage
from turnwright_executor.turn.model_call import model_call_from_entry, with_edits
from turnwright_executor.turn.records import error_write, record_write, refused_notes
from turnwright_executor.turn.turn_line import turn_ended
from turnwright_executor.turn.unsaved import UnsavedState, records_of
from turnwright_executor.wire.command_records import is_command, is_dispatched
from turnwright_kit.logs import get_logger

CHANNELS: Final = (1, 2)

_log = get_logger("settlement")


Compare = Callable[[CommandRecord], Awaitable[Done | None]]
"""What became of a marked change, by what its files hold; None: nothing of it happened."""


async def settle(
    ledger: Ledger,
    address: RunAddress,
    claim: ClaimRunResponse,
    unsaved: UnsavedState,
    ending: Ending,
    compare: Compare,
    refused_before: Sequence[str] = (),
) -> LoopEnd:
    """End the active loop of a claim with this ending. Raises TurnwrightError.

    `refused_before`: what the vendor had refused of the conversation before. A draft of another turn is
    ignored. Writes that the store rejects are left out: the end has priority.
    """
    draft = unsaved.draft
    if claim.run.status == PROPOSED and run_status_after(ending.status, ending.word) == FAILED:
        # The proposal must not fail while it waits: the run's state machine has no transition from 202 to 500.
        await ledger.write(address, claim.epoch, [], run_status=RUNNING)
    turn = claim.open_turn.number if claim.open_turn else 0
    draft = draft if draft.turn == turn else Draft()
    channels, reply = await _open_entries(ledger, address, claim)
    text = f"Not carried out: its loop ended before it began ({ending.word})."
    cancelled = Done(text, State.CANCELLED, ending.outcome)
    ended = [(record, await last_result(record, unsaved, cancelled, compare)) for record in _open_records(claim)]
    settled = [record_write(record.settled(done)) for record, done in ended]
    beside = [write for _, done in ended for write in done.writes]
    event = _ending_events(turn or claim.run.turn, claim, ending, ended)
    closed = {write.path for write in beside}
    left = [channel for channel in channels if channel.path not in closed]
    writes = [*closed_channels(left), *settled, *beside, *event]
    if turn and not reply:
        writes += [*_unfinished_reply(turn, draft, ending), *refused_notes(turn, draft.dropped, refused_before)]
    if ending.message:
        number = turn or claim.run.turn
        writes.append(error_write(error_path(number, ending.word, frozenset()), ending.outcome, ending.message))
    error = "" if ending is ABORT else ending.outcome
    finish = "aborted" if ending is ABORT else "error"
    if reply:
        note = await with_edits(ledger, address, turn, model_call_from_entry(reply))
        called = replace(note.result, work_ms=note.result.model_ms)
    else:
        lost_tokens = await _lost_tokens(ledger, address, claim, draft)
        lost_tokens += sum(one.total_tokens for one in draft.retried)
        lost_cost_usd = sum(one.cost_usd or 0.0 for one in draft.retried)
        called = TurnResult(
            usage=draft.usage,
            work_ms=draft.model_ms,
            lost_tokens=lost_tokens,
            lost_cost_usd=lost_cost_usd,
            dropped=draft.dropped or tuple(refused_before),
            path=draft.path,
        )
    called = replace(called, work_ms=max(called.work_ms, draft.work_ms))
    result = replace(called, finish=finish, error=error, status=ending.status, reason=ending.word)
    end = LoopEnd(ending.status, cut_bytes(ending.reason, REASON_BYTES_MAX))
    turn_end = EndTurnRequest(turn=turn, result=result, loop_end=end)
    await _end_with(ledger, address, claim.epoch, turn_end, (writes, [*settled, *event], ()))
    if turn:
        turn_ended(address, turn, result, len(claim.records))
    return end


def _open_records(claim: ClaimRunResponse) -> list[CommandRecord]:
    """Records that have not ended, or whose question was not answered and that nobody has told of it."""
    return [record for record in records_of(claim).values() if not record.state.is_settled or record.interrupted]


async def last_result(record: CommandRecord, unsaved: UnsavedState, cancelled: Done, compare: Compare) -> Done:
    """How an open command ends that nobody goes on with: `cancelled` only if it has not happened."""
    here = unsaved.local_stage(record)
    known = unsaved.outside_results[record.path] if here is LocalStage.DONE else submitted_result(record)
    here = LocalStage.DONE if known else here
    action = Action.INDETERMINATE if record.state.is_settled else LAST[record.stage, record.effect_class, here]
    match action:
        case Action.SETTLE if known:
            return known
        case Action.ANSWER:
            return indeterminate.apply_answer(record) or indeterminate.given_up(record)
        case Action.COMPARE:
            if not isinstance(record.effect, FileEffect):
                return indeterminate.given_up(record)
            if compared := await compare(record):
                return compared
        case Action.INDETERMINATE:
            return indeterminate.given_up(record)
    return failed(cancelled.outcome, _LEFT) if record.waits_for_agents else cancelled


_LEFT: Final = "Its loop ended before the agents did that it waited for: they are stopped."


def _ending_events(
    turn: int, claim: ClaimRunResponse, ending: Ending, ended: Sequence[tuple[CommandRecord, Done]]
) -> list[EntryWrite]:
    """The events about an abort, a turn that was given up with unfinished commands, and what nobody knows of."""
    loop = claim.loop.sequence if claim.loop else 0
    cancelled = [record.path for record, done in ended if done.state is State.CANCELLED]
    events = [
        command_lost(record.path, record.tool, done.outcome, ())
        for record, done in ended
        if done.outcome == indeterminate.OUTCOME
    ]
    if ending is ABORT:
        events.append(loop_aborted(loop, cancelled))
    elif ending.word == CRASH_LOOP and ended:
        events.append(crashes_given_up(loop, cancelled))
    return [event_write(turn, event) for event in events]


async def _end_with(
    ledger: Ledger, address: RunAddress, epoch: int, end: EndTurnRequest, choices: Sequence[Sequence[EntryWrite]]
) -> None:
    """End the loop with the first of these lists of writes that the store accepts. Raises TurnwrightError."""
    for writes in choices[:-1]:
        try:
            await ledger.end_turn(address, epoch, replace(end, writes=writes))
        except TurnwrightError as error:
            if is_transient(error) or error.reason in GONE:
                raise
            _log.warning("end_refused", run=address.run, writes=len(writes), reason=error.reason.name)
        else:
            return
    await ledger.end_turn(address, epoch, replace(end, writes=choices[-1]))


async def _open_entries(
    ledger: Ledger, address: RunAddress, claim: ClaimRunResponse
) -> tuple[list[Entry], Entry | None]:
    """The channels of commands in the open turn, and its reply if it is recorded."""
    paths = channels_of(entry.path for entry in claim.records if is_dispatched(entry))
    is_recorded = claim.open_turn is not None and any(is_command(entry) for entry in claim.records)
    reply = f"assistant://{claim.open_turn.number}" if claim.open_turn and is_recorded else ""
    asked = [*paths, *filter(None, [reply])]
    try:
        found = await ledger.get_entries(address, asked) if asked else []
    except TurnwrightError as error:
        if error.reason is not Reason.LIMIT_EXCEEDED:
            raise
        # Together they exceed the size of an answer.
        found = [entry for path in asked for entry in await ledger.get_entries(address, [path])]
    kept = {entry.path: entry for entry in found}
    return [kept[path] for path in paths if path in kept], kept.get(reply)


async def _lost_tokens(ledger: Ledger, address: RunAddress, claim: ClaimRunResponse, draft: Draft) -> int:
    """Reserved tokens of calls in the open turn without a reply, or without reported usage."""
    if claim.open_turn is None:
        return 0
    calls = max(0, claim.turn_calls - draft.unmade_calls - (draft.usage.total_tokens > 0))
    packet = await ledger.read_packet(address, claim.open_turn.number) if calls else None
    return calls * (packet.expected_tokens + REPLY_RESERVE_TOKENS) if packet else 0


def _unfinished_reply(turn: int, draft: Draft, ending: Ending) -> Iterable[EntryWrite]:
    if not draft.text:
        return []
    attributes = to_attributes_json({"finish": "aborted" if ending is ABORT else "error"})
    change = SetEntry(body=draft.text, attributes_json=attributes, state=State.CANCELLED, outcome=ending.outcome)
    return [EntryWrite(f"assistant://{turn}", change, Tier.SYSTEM, turn=turn)]


def channels_of(records: Iterable[str]) -> list[str]:
    """Paths at which commands with these records may have output."""
    return [channel_path(path, channel) for path in records for channel in CHANNELS]


def closed_channels(channels: Iterable[Entry]) -> list[EntryWrite]:
    """The writes that end channels that are still streaming although their producer is gone."""
    change = SetEntry(state=State.CANCELLED, outcome=PRODUCER_LOST)
    return [EntryWrite(entry.path, change, Tier.PLUGIN) for entry in channels if entry.state is State.STREAMING]
