"""Ending a loop from outside its turns: it was aborted, or it cannot go on.

Everything open is settled in one write, whatever state the loop was in; the text that the model had written so far is
kept. Source: architecture 11; rows RU004, RU111, RU154, RU217, RU220; decisions C6, C27, C36; RC06.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from turnwright_core.claims import Claim
from turnwright_core.entries import Entry, EntryWrite, SetEntry, State, Tier, to_attributes_json
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.events import event_write
from turnwright_core.kit.logs import get_logger
from turnwright_core.limits import REASON_BYTES_MAX, REPLY_RESERVE_TOKENS
from turnwright_core.owner_calls import TurnEnd
from turnwright_core.runs import FAILED, PROPOSED, RUNNING, LoopEnd, TurnResult, run_status_after
from turnwright_core.streams import channel_path
from turnwright_core.text import cut_bytes
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import ABORT, CRASH_LOOP, GONE, Ending, is_transient
from turnwright_executor.domain.records import error_path
from turnwright_executor.domain.run_events import crashes_given_up, loop_aborted
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.model_call import model_call_from_entry, with_edits
from turnwright_executor.turn.records import error_write
from turnwright_executor.turn.turn_line import turn_ended
from turnwright_executor.wire.command_records import is_command, is_dispatched

CHANNELS: Final = (1, 2)

_log = get_logger("settlement")


async def settle(ledger: Ledger, address: RunAddress, claim: Claim, draft: Draft, ending: Ending) -> LoopEnd:
    """End the active loop of a claim with this ending. Raises TurnwrightError.

    A draft of another turn is ignored. Writes that the store rejects are left out: the end has priority.
    """
    if claim.run.status == PROPOSED and run_status_after(ending.status, ending.word) == FAILED:
        # The proposal must not fail while it waits: the run's state machine has no transition from 202 to 500.
        await ledger.write(address, claim.epoch, [], run_status=RUNNING)
    turn = claim.open_turn.number if claim.open_turn else 0
    draft = draft if draft.turn == turn else Draft()
    channels, reply = await _open_entries(ledger, address, claim)
    settled = [_settled(record, ending) for record in claim.records if not record.state.is_settled]
    event = _ending_event(turn or claim.run.turn, claim, ending, [write.path for write in settled])
    writes = [*closed_channels(channels, ending.outcome), *settled, *event]
    if turn and not reply:
        writes += _unfinished_reply(turn, draft, ending)
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
            usage=draft.usage, work_ms=draft.model_ms, lost_tokens=lost_tokens, lost_cost_usd=lost_cost_usd
        )
    called = replace(called, work_ms=max(called.work_ms, draft.work_ms))
    result = replace(called, finish=finish, error=error, status=ending.status, reason=ending.word)
    end = LoopEnd(ending.status, cut_bytes(ending.reason, REASON_BYTES_MAX))
    ended = TurnEnd(turn, result, loop_end=end)
    await _end_with(ledger, address, claim.epoch, ended, (writes, [*settled, *event], ()))
    if turn:
        turn_ended(address, turn, result, len(claim.records))
    return end


def _ending_event(turn: int, claim: Claim, ending: Ending, cancelled: Sequence[str]) -> list[EntryWrite]:
    """The event about an abort, or about a turn that was given up with unfinished commands."""
    loop = claim.loop.sequence if claim.loop else 0
    if ending is ABORT:
        return [event_write(turn, loop_aborted(loop, cancelled))]
    return [event_write(turn, crashes_given_up(loop, cancelled))] if ending.word == CRASH_LOOP and cancelled else []


async def _end_with(
    ledger: Ledger, address: RunAddress, epoch: int, end: TurnEnd, choices: Sequence[Sequence[EntryWrite]]
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


async def _open_entries(ledger: Ledger, address: RunAddress, claim: Claim) -> tuple[list[Entry], Entry | None]:
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


async def _lost_tokens(ledger: Ledger, address: RunAddress, claim: Claim, draft: Draft) -> int:
    """Reserved tokens of calls in the open turn without a reply, or without reported usage."""
    if claim.open_turn is None:
        return 0
    calls = max(0, claim.turn_calls - draft.unmade_calls - (draft.usage.total_tokens > 0))
    packet = await ledger.read_packet(address, claim.open_turn.number) if calls else None
    return calls * (packet.expected_tokens + REPLY_RESERVE_TOKENS) if packet else 0


def _settled(record: Entry, ending: Ending) -> EntryWrite:
    change = SetEntry(state=State.CANCELLED, outcome=ending.outcome)
    return EntryWrite(record.path, change, Tier.SYSTEM)


def _unfinished_reply(turn: int, draft: Draft, ending: Ending) -> Iterable[EntryWrite]:
    if not draft.text:
        return []
    attributes = to_attributes_json({"finish": "aborted" if ending is ABORT else "error"})
    change = SetEntry(body=draft.text, attributes_json=attributes, state=State.CANCELLED, outcome=ending.outcome)
    return [EntryWrite(f"assistant://{turn}", change, Tier.SYSTEM, turn=turn)]


def channels_of(records: Iterable[str]) -> list[str]:
    """Paths at which commands with these records may have output."""
    return [channel_path(path, channel) for path in records for channel in CHANNELS]


def closed_channels(channels: Iterable[Entry], outcome: str) -> list[EntryWrite]:
    """The writes that end channels that are still streaming although their producer is gone."""
    change = SetEntry(state=State.CANCELLED, outcome=outcome)
    return [EntryWrite(entry.path, change, Tier.PLUGIN) for entry in channels if entry.state is State.STREAMING]
