"""Ending a loop from outside its turns: somebody aborted it, or it cannot go on.

Everything that is open is settled in one write, whatever state the loop was left in; the text that the model had
written so far is kept.
Source: architecture 11; rows RU004, RU111, RU154, RU217, RU220; decisions C6, C27, C36; RC06.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from turnwright_core.entries import Entry, EntryWrite, SetEntry, State, Tier, to_attributes_json
from turnwright_core.errors import TurnwrightError
from turnwright_core.runs import ABORTED, FAILED, PROPOSED, RUNNING, LoopEnd, TurnResult, run_status_after
from turnwright_executor.app.generation import Draft
from turnwright_executor.app.records import error_write
from turnwright_executor.domain.endings import status_of_error
from turnwright_executor.domain.records import channel_path, error_path
from turnwright_executor.ports import Claim, Ledger, RunAddress

CHANNELS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a loop ends: its status, a word for it, and for a failure the sentence that the model reads next time."""

    status: int
    word: str
    message: str = ""

    @property
    def outcome(self) -> str:
        """What the entries say that end with it."""
        return f"{self.word}:{self.status}"


ABORT: Final = Ending(ABORTED, "aborted")


def ending_of(error: TurnwrightError | OSError) -> Ending:
    """How a loop ends that ran into an error: 413 when the context was too long for the model, else 500."""
    if isinstance(error, OSError):
        return Ending(FAILED, "workspace_unavailable", f"The project's directory cannot be read: {error.strerror}.")
    return Ending(status_of_error(error), error.reason.name.lower(), error.message)


async def settle(ledger: Ledger, address: RunAddress, claim: Claim, draft: Draft, ending: Ending) -> None:
    """End the active loop of a claim. Raises TurnwrightError."""
    if claim.run.status == PROPOSED and run_status_after(ending.status, ending.word) == FAILED:
        # Nothing fails while it waits: the run state machine has no way from 202 to 500.
        await ledger.write(address, claim.epoch, [], run_status=RUNNING)
    writes = [*await _open_channels(ledger, address, claim.records, ending)]
    writes += [_settled(record, ending) for record in claim.records if not record.state.is_settled]
    turn = claim.open_turn.number if claim.open_turn else 0
    if turn and not claim.records:
        writes += _unfinished_reply(turn, draft, ending)
    if ending.message:
        number = turn or claim.run.turn
        writes.append(error_write(error_path(number, ending.word, frozenset()), ending.outcome, ending.message))
    error = "" if ending is ABORT else ending.outcome
    finish = "aborted" if ending is ABORT else "error"
    result = TurnResult(finish=finish, error=error, usage=draft.usage, status=ending.status, reason=ending.word)
    reason = f"{ending.word}: {ending.message}" if ending.message else ending.word
    await ledger.end_turn(address, claim.epoch, turn, result, writes, LoopEnd(ending.status, reason))


def _settled(record: Entry, ending: Ending) -> EntryWrite:
    change = SetEntry(state=State.CANCELLED, outcome=ending.outcome)
    return EntryWrite(record.path, change, Tier.SYSTEM)


def _unfinished_reply(turn: int, draft: Draft, ending: Ending) -> Iterable[EntryWrite]:
    if not draft.text:
        return []
    attributes = to_attributes_json({"finish": "aborted" if ending is ABORT else "error"})
    change = SetEntry(body=draft.text, attributes_json=attributes, state=State.CANCELLED, outcome=ending.outcome)
    return [EntryWrite(f"assistant://{turn}", change, Tier.SYSTEM, turn=turn)]


async def _open_channels(
    ledger: Ledger, address: RunAddress, records: Iterable[Entry], ending: Ending
) -> list[EntryWrite]:
    """The output channels that still stream: their producer is gone."""
    running = [record for record in records if record.attributes.get("dispatched")]
    paths = [channel_path(record.path, channel) for record in running for channel in CHANNELS]
    entries = await ledger.get_entries(address, paths) if paths else []
    streaming = [entry for entry in entries if entry.state is State.STREAMING]
    change = SetEntry(state=State.CANCELLED, outcome=ending.outcome)
    return [EntryWrite(entry.path, change, Tier.PLUGIN) for entry in streaming]
