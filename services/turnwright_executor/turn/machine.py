"""The state machine of a turn: the next step as a pure function of the ledger and of what this process knows.

Theory of operation. Whatever the next step needs is in the ledger before that step, with one exception: a reply whose
commands are all pure. An owner that takes over without it asks the model again, and nothing else differs. So the state
read back from the ledger after a crash, a takeover or a decision gives the same next step as the state that was lost.
What only this process knows (an effect that has just happened, a reply that the store could not take yet) decides
between going on and asking what became of it.

Whatever interrupts a turn is part of its state: an abort, an exhausted budget, a failure, too many lost owners. It is
an `ending`, and a state with an ending has one next step. What its commands are told as follows from the same cells:
`cancelled` only if it did not happen.

The same tables drive the turn of a loop, a command called by a client, and the end of a loop from outside its turns.

Source: architecture 2, 3, 11; rows RU005, RU007, RU127-RU142, RU149-RU157, RU199; decisions C3, C20, C26, C27, C29,
C63.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import product
from typing import Final

from msgspec import Struct, field
from turnwright_values.types import State

from turnwright_core.tools import DELEGATE
from turnwright_executor.domain.command_record import CommandRecord, Stage
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.endings import Ending

UPDATE: Final = "update"
"""The command that reports about the turn: it is carried out even if an earlier one failed (RU140)."""


class LocalStage(StrEnum):
    """What this process knows about a command, in addition to its record."""

    NOTHING = "nothing"
    UNDECIDED = "undecided"
    """Its effect was prepared here, and needs a decision."""
    GRANTED = "granted"
    """Its effect was prepared here, and is already decided: yolo, or the client that calls it."""
    CLEARED = "cleared"
    """The effect has passed all filters, and has not started."""
    MARKED = "marked"
    """The mark of its effect is durable, and the effect has not started."""
    DONE = "done"
    """Its result is known here, whether or not the store has it."""


class Action(StrEnum):
    """A step of a turn."""

    # Of the turn
    PLACE = "place"
    """Find the project's files, and read the spend."""
    BEGIN = "begin"
    ASSEMBLE = "assemble"
    GENERATE = "generate"
    RECORD = "record"
    JUDGE = "judge"
    FLUSH = "flush"
    """Store the results of a client's command."""
    END = "end"
    """End the loop from whatever state it is in."""
    # Of one command
    PREPARE = "prepare"
    PROPOSE = "propose"
    ACCEPT = "accept"
    """Run the plugins' filters on what was accepted."""
    MARK = "mark"
    """Durably mark that the effect may start."""
    PERFORM = "perform"
    SETTLE = "settle"
    """Use the result that is known here."""
    INDETERMINATE = "indeterminate"
    """It is unknown whether it happened: say so, or ask somebody."""
    ANSWER = "answer"
    """Use somebody's answer about what became of it."""
    REJECT = "reject"
    """Report that nothing happens, because of somebody's decision."""
    CANCEL = "cancel"
    """It will not happen, unless it has already: an earlier command did not succeed, or the loop ends."""
    COMPARE = "compare"
    """The loop ends: whether it happened is told by what its files hold."""
    # Of nobody any more
    PARK = "park"
    """Wait for a decision."""
    STOP = "stop"
    """Nothing is left to do."""


class Phase(StrEnum):
    """Progress of the turn, apart from its commands."""

    ENDING = "ending"
    OVER = "over"
    UNPLACED = "unplaced"
    CLOSED = "closed"
    OPEN = "open"
    ASSEMBLED = "assembled"
    REPLIED = "replied"
    DISPATCHED = "dispatched"
    """It is recorded: the commands decide what follows, and once all are settled the verdict."""


LOOP: Final[Mapping[Phase, Action]] = {
    Phase.ENDING: Action.END,
    Phase.OVER: Action.STOP,
    Phase.UNPLACED: Action.PLACE,
    Phase.CLOSED: Action.BEGIN,
    Phase.OPEN: Action.ASSEMBLE,
    Phase.ASSEMBLED: Action.GENERATE,
    Phase.REPLIED: Action.RECORD,
    Phase.DISPATCHED: Action.JUDGE,
}
"""The steps of a loop's turn."""

CALL: Final[Mapping[Phase, Action]] = {Phase.DISPATCHED: Action.FLUSH, Phase.OVER: Action.STOP}
"""The steps of a client's command."""

_ANY_CLASS: Final = tuple(EffectClass)
_REPEATED: Final = (EffectClass.PURE, EffectClass.IDEMPOTENT)

_ROWS: Final = (
    (Stage.RECORDED, _ANY_CLASS, (LocalStage.NOTHING,), Action.PREPARE),
    (Stage.RECORDED, _ANY_CLASS, (LocalStage.UNDECIDED,), Action.PROPOSE),
    (Stage.RECORDED, _ANY_CLASS, (LocalStage.GRANTED,), Action.ACCEPT),
    (Stage.RECORDED, _ANY_CLASS, (LocalStage.CLEARED,), Action.MARK),
    (Stage.PROPOSED, _ANY_CLASS, tuple(LocalStage), Action.PARK),
    (Stage.ASKED, _ANY_CLASS, tuple(LocalStage), Action.PARK),
    (Stage.ANSWERED, _ANY_CLASS, tuple(LocalStage), Action.ANSWER),
    (
        Stage.ACCEPTED,
        _ANY_CLASS,
        (LocalStage.NOTHING, LocalStage.GRANTED, LocalStage.UNDECIDED),
        Action.ACCEPT,
    ),
    (Stage.ACCEPTED, _ANY_CLASS, (LocalStage.CLEARED,), Action.MARK),
    (Stage.DISPATCHED, _ANY_CLASS, (LocalStage.MARKED,), Action.PERFORM),
    (Stage.DISPATCHED, _ANY_CLASS, (LocalStage.DONE,), Action.SETTLE),
    (Stage.DISPATCHED, (EffectClass.OUTSIDE,), (LocalStage.NOTHING,), Action.INDETERMINATE),
    # The mark is this process's own, and the effect has not started: it is marked again, which confirms the lease.
    (Stage.DISPATCHED, (EffectClass.OUTSIDE,), (LocalStage.CLEARED,), Action.MARK),
    # It can detect an earlier attempt, or that does not matter: it is marked again, which confirms the lease.
    (Stage.DISPATCHED, _REPEATED, (LocalStage.NOTHING,), Action.MARK),
)

_UNKNOWN_HERE: Final = tuple(here for here in LocalStage if here is not LocalStage.DONE)
_NOT_STARTED: Final = (LocalStage.CLEARED, LocalStage.MARKED)

_LAST_ROWS: Final = (
    *((stage, _ANY_CLASS, (LocalStage.DONE,), Action.SETTLE) for stage in Stage if stage is not Stage.SETTLED),
    *((stage, _ANY_CLASS, _UNKNOWN_HERE, Action.CANCEL) for stage in (Stage.RECORDED, Stage.PROPOSED, Stage.ACCEPTED)),
    (Stage.ASKED, _ANY_CLASS, _UNKNOWN_HERE, Action.INDETERMINATE),
    (Stage.ANSWERED, _ANY_CLASS, _UNKNOWN_HERE, Action.ANSWER),
    (Stage.DISPATCHED, (EffectClass.PURE,), _UNKNOWN_HERE, Action.CANCEL),
    # An earlier owner may have carried it out, whatever this process has done.
    (Stage.DISPATCHED, (EffectClass.IDEMPOTENT,), _UNKNOWN_HERE, Action.COMPARE),
    (Stage.DISPATCHED, (EffectClass.OUTSIDE,), _NOT_STARTED, Action.CANCEL),
    (
        Stage.DISPATCHED,
        (EffectClass.OUTSIDE,),
        tuple(here for here in _UNKNOWN_HERE if here not in _NOT_STARTED),
        Action.INDETERMINATE,
    ),
)

Cell = tuple[Stage, EffectClass, LocalStage]


def _table(rows: Iterable[tuple[Stage, Iterable[EffectClass], Iterable[LocalStage], Action]]) -> Mapping[Cell, Action]:
    return {cell: action for stage, classes, heres, action in rows for cell in product((stage,), classes, heres)}


COMMAND: Final = _table(_ROWS)
"""The steps of a command that is not settled. A cell that is missing cannot be reached."""

LAST: Final = _table(_LAST_ROWS)
"""What becomes of such a command when its loop ends, in whatever way. Has every cell."""


class Step(Struct, frozen=True):
    """An action; `path` is the record of its command, empty for the turn."""

    action: Action
    path: str = ""


class TurnState(Struct):
    """The state of a loop's turn, or of a client's command. Mutable: the steps advance it.

    `records` are those of the open turn by path, in the order in which they were written.
    """

    is_call: bool = False
    ending: Ending | None = None
    is_over: bool = False
    is_placed: bool = False
    turn: int = 0
    """The open turn; 0: none."""
    is_assembled: bool = False
    is_replied: bool = False
    is_recorded: bool = False
    records: dict[str, CommandRecord] = field(default_factory=dict)
    local_stages: dict[str, LocalStage] = field(default_factory=dict)
    """Knowledge of this process about commands, by record."""
    announced: set[str] = field(default_factory=set)
    """Records whose rejection observers were notified of."""

    def begin(self, turn: int) -> None:
        """Another turn is open; 0: none is."""
        self.turn = turn
        self.is_assembled = self.is_replied = self.is_recorded = False
        self.records, self.local_stages, self.announced = {}, {}, set()

    @property
    def is_decided(self) -> bool:
        """Whether no command waits for a decision."""
        return not any(record.state is State.PROPOSED for record in self.records.values())


def next_step(state: TurnState) -> Step:
    """The next step. Total: defined for every reachable state."""
    phase = phase_of(state)
    step = _of_commands(state) if phase is Phase.DISPATCHED else None
    return step or Step((CALL if state.is_call else LOOP)[phase])


def phase_of(state: TurnState) -> Phase:
    """The phase of the turn, apart from its commands if these are recorded."""
    if state.is_over or state.ending:
        return Phase.OVER if state.is_over else Phase.ENDING
    if not state.is_placed and not state.is_call:
        return Phase.UNPLACED
    if state.is_recorded:
        return Phase.DISPATCHED
    if not state.turn:
        return Phase.CLOSED
    if state.is_assembled:
        return Phase.REPLIED if state.is_replied else Phase.ASSEMBLED
    return Phase.OPEN


def _of_commands(state: TurnState) -> Step | None:
    """The step of the first command that needs one; None: all are settled.

    While a command waits for its agent, those behind it that start agents go on: so several work at once.
    """
    broken, waiting = False, None
    for path, record in state.records.items():
        is_held = broken and not record.call_id
        if not record.state.is_settled:
            cell = record.stage, record.effect_class, state.local_stages.get(path, LocalStage.NOTHING)
            # What may have happened outside goes on: only that tells what became of it.
            if is_held and record.tool != UPDATE and LAST[cell] in (Action.CANCEL, Action.COMPARE):
                return Step(Action.CANCEL, path)
            if record.waits_for_agents:
                waiting = waiting or Step(COMMAND[cell], path)
                continue
            if waiting and record.tool != DELEGATE:
                return waiting
            return Step(COMMAND[cell], path)
        is_over = is_held and not record.interrupted
        if record.decision and record.rejection and path not in state.announced and not is_over:
            return Step(Action.REJECT, path)
        # A native call gets its own result, and does not stop others (C28).
        broken = broken or (record.state is not State.RESOLVED and not record.call_id)
    return waiting
