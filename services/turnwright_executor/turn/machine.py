"""What comes next in a turn: a pure function of what the ledger holds and of what is known here beside it.

Theory of operation. Everything that a step leaves behind is in the ledger before the next step needs it, but for a
reply whose commands are all pure: whoever takes its turn up asks for it again, and nothing else differs. So the state
that is read back from the ledger after a crash, a takeover or a decision gives the same next step as the state that
was left there; what only this process knows (an effect that has just happened, a reply that the store could not take
yet) makes the difference between going on and asking what became of it.

What interrupts a turn is part of its state like anything else: an abort, a budget that is spent, a failure, too many
lost owners. It is an `ending`, and a state with an ending has one next step.

The same tables drive a turn of a loop, a command that a client called, and the end of a loop from outside of its turns.

Source: architecture 2, 3, 11; rows RU005, RU007, RU127-RU142, RU149-RU157, RU199; decisions C3, C20, C26, C27, C29.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import product
from typing import Final

from msgspec import Struct, field

from turnwright_core.entries import State
from turnwright_executor.domain.command_record import CommandRecord, Stage
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.endings import Ending

UPDATE: Final = "update"
"""The command that speaks about the turn: it is carried out although one before it failed (RU140)."""


class CommandProgress(Enum):
    """What this process knows of a command, beside its record."""

    NOTHING = "nothing"
    UNDECIDED = "undecided"
    """Its effect was prepared here, and somebody has to decide on it."""
    GRANTED = "granted"
    """Its effect was prepared here, and whoever decides has decided before: yolo, or the client that calls it."""
    CLEARED = "cleared"
    """Nothing stands between the command and its effect any more."""
    MARKED = "marked"
    """The mark of its effect is durable, and the effect has not begun."""
    DONE = "done"
    """What came of its effect is known, whether or not the store is."""


class Action(Enum):
    """A step of a turn."""

    # Of the turn
    PLACE = "place"
    """Find the project's files, and read what was spent."""
    BEGIN = "begin"
    ASSEMBLE = "assemble"
    GENERATE = "generate"
    RECORD = "record"
    JUDGE = "judge"
    FLUSH = "flush"
    """Make durable what a client's command has brought."""
    END = "end"
    """End the loop from whatever state it is in."""
    # Of one command
    PREPARE = "prepare"
    PROPOSE = "propose"
    ACCEPT = "accept"
    """Have plugins veto or amend what was accepted."""
    MARK = "mark"
    """Make durable that the effect may have begun."""
    PERFORM = "perform"
    SETTLE = "settle"
    """Take the outcome that is known here."""
    INDETERMINATE = "indeterminate"
    """Nobody knows whether it happened: say so, or ask somebody."""
    ANSWER = "answer"
    """Take what somebody said became of it."""
    REJECT = "reject"
    """Tell that nothing happens, by somebody's decision."""
    CANCEL = "cancel"
    """A command before it did not succeed."""
    # Of nobody any more
    PARK = "park"
    """Wait for a decision."""
    STOP = "stop"
    """Nothing is left to do."""


TERMINAL: Final = frozenset({Action.PARK, Action.STOP})


class Phase(Enum):
    """How far a turn came, beside its commands."""

    ENDING = "ending"
    OVER = "over"
    UNPLACED = "unplaced"
    CLOSED = "closed"
    OPEN = "open"
    ASSEMBLED = "assembled"
    REPLIED = "replied"
    DISPATCHED = "dispatched"
    """It is recorded: what follows is up to its commands, and once all are settled to the verdict."""


_PHASES: Final[Sequence[tuple[Phase, Callable[[TurnState], object]]]] = (
    (Phase.OVER, lambda state: state.is_over),
    (Phase.ENDING, lambda state: state.ending),
    (Phase.UNPLACED, lambda state: not state.is_placed and not state.is_call),
    (Phase.DISPATCHED, lambda state: state.is_recorded),
    (Phase.CLOSED, lambda state: not state.turn),
    (Phase.OPEN, lambda state: not state.is_assembled),
    (Phase.ASSEMBLED, lambda state: not state.is_replied),
    (Phase.REPLIED, lambda _: True),
)
"""The first that holds."""

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
    (Stage.RECORDED, _ANY_CLASS, (CommandProgress.NOTHING,), Action.PREPARE),
    (Stage.RECORDED, _ANY_CLASS, (CommandProgress.UNDECIDED,), Action.PROPOSE),
    (Stage.RECORDED, _ANY_CLASS, (CommandProgress.GRANTED,), Action.ACCEPT),
    (Stage.RECORDED, _ANY_CLASS, (CommandProgress.CLEARED,), Action.MARK),
    (Stage.PROPOSED, _ANY_CLASS, tuple(CommandProgress), Action.PARK),
    (Stage.ANSWERED, _ANY_CLASS, tuple(CommandProgress), Action.ANSWER),
    (
        Stage.ACCEPTED,
        _ANY_CLASS,
        (CommandProgress.NOTHING, CommandProgress.GRANTED, CommandProgress.UNDECIDED),
        Action.ACCEPT,
    ),
    (Stage.ACCEPTED, _ANY_CLASS, (CommandProgress.CLEARED,), Action.MARK),
    (Stage.DISPATCHED, _ANY_CLASS, (CommandProgress.MARKED,), Action.PERFORM),
    (Stage.DISPATCHED, _ANY_CLASS, (CommandProgress.DONE,), Action.SETTLE),
    (Stage.DISPATCHED, (EffectClass.OUTSIDE,), (CommandProgress.NOTHING,), Action.INDETERMINATE),
    # It can tell, or it does not matter, that it happened before: the mark is made again, and with it the lease is
    # made sure of.
    (Stage.DISPATCHED, _REPEATED, (CommandProgress.NOTHING,), Action.MARK),
)

COMMAND: Final[Mapping[tuple[Stage, EffectClass, CommandProgress], Action]] = {
    cell: action for stage, classes, heres, action in _ROWS for cell in product((stage,), classes, heres)
}
"""The steps of a command that is not settled. A cell that is missing cannot be reached."""


class Step(Struct, frozen=True):
    """An action; `path` is the record of the command that it is about, empty for the turn."""

    action: Action
    path: str = ""


class TurnState(Struct):
    """A loop's turn, or a client's command, as far as it came. Mutable: the steps move it.

    `records` are those of the open turn by their paths, in the order in which they were written.
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
    progress: dict[str, CommandProgress] = field(default_factory=dict)
    """What is known here of commands, by record."""
    heard: set[str] = field(default_factory=set)
    """The records whose rejection was told to observers."""

    def begin(self, turn: int) -> None:
        """Another turn is open; 0: none is."""
        self.turn = turn
        self.is_assembled = self.is_replied = self.is_recorded = False
        self.records, self.progress, self.heard = {}, {}, set()

    @property
    def is_decided(self) -> bool:
        """Whether no command waits for a decision."""
        return not any(record.state is State.PROPOSED for record in self.records.values())


def next_step(state: TurnState) -> Step:
    """The next step. Total: every state that can be reached has one."""
    phase = phase_of(state)
    step = _of_commands(state) if phase is Phase.DISPATCHED else None
    return step or Step((CALL if state.is_call else LOOP)[phase])


def phase_of(state: TurnState) -> Phase:
    """How far the turn came; of a turn whose commands are recorded, how far it is without looking at these."""
    return next(phase for phase, holds in _PHASES if holds(state))


def _of_commands(state: TurnState) -> Step | None:
    """The step of the first command that needs one; None: all are settled."""
    broken = False
    for path, record in state.records.items():
        stage, is_held = record.stage, broken and not record.call_id
        if stage is not Stage.SETTLED:
            is_cancelled = is_held and record.tool != UPDATE
            return Step(
                Action.CANCEL if is_cancelled else action_of(record, state.progress.get(path, CommandProgress.NOTHING)),
                path,
            )
        if record.rejection is not None and path not in state.heard and not is_held:
            return Step(Action.REJECT, path)
        # A native call is answered by itself, and stops no other (C28).
        broken = broken or (record.state is not State.RESOLVED and not record.call_id)
    return None


def action_of(record: CommandRecord, progress: CommandProgress) -> Action:
    """The step of a command that is not settled."""
    return COMMAND[record.stage, record.effect_class, progress]
