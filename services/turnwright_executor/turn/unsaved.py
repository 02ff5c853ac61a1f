"""State of a loop that the store does not have, because it is unavailable or rejects the writes.

So a reply that was paid for is not requested again, an outside effect is not reported as indeterminate, and a loop
whose end the store rejected only ends: its model is not called any more.
"""

from __future__ import annotations

from msgspec import Struct, field
from turnwright_values.store import ClaimRunResponse
from turnwright_values.types import RunPath

from turnwright_executor.domain.command_record import CommandRecord, Done, Stage
from turnwright_executor.domain.endings import ABORT, Ending, crash_loop
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.machine import LocalStage, TurnState
from turnwright_executor.wire.command_records import is_command, record_from_entry


class UnsavedState(Struct):
    """The unsaved state of one loop, identified by its sequence."""

    loop: int
    draft: Draft = field(default_factory=Draft)
    """The reply of the open turn, as far as it was received."""
    outside_results: dict[str, Done] = field(default_factory=dict)
    """Results of outside effects of the open turn, by record."""
    unstarted: set[str] = field(default_factory=set)
    """Keys of marks that this process made for outside effects that it has not started."""
    has_agents: bool = False
    """Whether it has started agents, or waits for some."""
    ending: Ending | None = None
    """How it ends, once that is decided from outside its turns."""

    def local_stage(self, record: CommandRecord) -> LocalStage:
        """What this process knows of a record from the ledger."""
        if record.stage is not Stage.DISPATCHED:
            return LocalStage.NOTHING
        if record.path in self.outside_results:
            return LocalStage.DONE
        return LocalStage.CLEARED if record.key in self.unstarted else LocalStage.NOTHING

    def begin_reply(self, turn: int, path: RunPath | None = None) -> Draft:
        """An empty draft for a turn that runs there; its calls that were not made stay counted."""
        unmade_calls = self.draft.unmade_calls if self.draft.turn == turn else 0
        self.draft = Draft(unmade_calls=unmade_calls, turn=turn, path=path)
        return self.draft


def records_of(claim: ClaimRunResponse) -> dict[str, CommandRecord]:
    """The commands of the open turn, by record."""
    return {entry.path: record_from_entry(entry) for entry in claim.records if is_command(entry)}


def state_of(claim: ClaimRunResponse, unsaved: UnsavedState, losses_max: int) -> TurnState:
    """The state of a loop, from its ledger and from the unsaved state. `losses_max`: owners that a turn may lose."""
    records = records_of(claim)
    turn = claim.open_turn.number if claim.open_turn else 0
    ending = unsaved.ending
    if claim.abort_requested:
        ending = ABORT
    elif claim.turn_losses >= losses_max:
        ending = crash_loop(claim.turn_losses)
    return TurnState(
        ending=ending,
        is_over=claim.loop is None,
        turn=turn,
        is_replied=bool(turn) and unsaved.draft.turn == turn and unsaved.draft.is_whole,
        is_recorded=bool(records),
        records=records,
        local_stages={path: unsaved.local_stage(record) for path, record in records.items()},
    )
