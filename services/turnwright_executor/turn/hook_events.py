"""Notifies observers of events of a loop and its turns, under their hook names.

The facts are already stored, except the reply (`turn.response`) and its commands if all of them are pure, which are
stored with their results. Nobody is waited for. Source: rows RU041, RU142, RU148.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from turnwright_values.store import LoopEnd
from turnwright_values.types import Loop, TurnResult

from turnwright_executor.domain.addresses import RunAddress, TurnAddress
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.hooks import points
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.points import (
    EntryCreated,
    LoopCompleted,
    LoopStarted,
    TurnCompleted,
    TurnDispatched,
    TurnResponse,
    TurnStarted,
)
from turnwright_executor.turn.generation import Draft


class HookEvents:
    """The events of one loop."""

    def __init__(self, hooks: Hooks, address: RunAddress, loop: Loop) -> None:
        """`loop` is one of this run's."""
        self._hooks = hooks
        self._address = address
        self._loop = loop

    def at(self, turn: int) -> TurnAddress:
        """The address of one of the loop's turns."""
        return TurnAddress(self._address.project, self._address.run, self._loop.sequence, turn)

    def begun(self, turn: int, *, first: bool) -> None:
        """A turn has begun, and with the first one its loop."""
        if first and self._hooks.observes(points.LOOP_STARTED):
            started = LoopStarted(self.at(turn), self._loop.settings.mode, self._loop.prompt)
            self._hooks.emit(points.LOOP_STARTED, started)
        if self._hooks.observes(points.TURN_STARTED):
            self._hooks.emit(points.TURN_STARTED, TurnStarted(self.at(turn)))

    def replied(self, turn: int, draft: Draft) -> None:
        """The model's reply is complete."""
        if self._hooks.observes(points.TURN_RESPONSE):
            reply = TurnResponse(self.at(turn), draft.text, draft.finish, draft.usage)
            self._hooks.emit(points.TURN_RESPONSE, reply)

    def recorded(self, turn: int, records: Iterable[CommandRecord]) -> None:
        """The reply's commands are recorded: durable, unless all of them are pure."""
        for record in records if self._hooks.observes(points.ENTRY_CREATED) else ():
            created = EntryCreated(self.at(turn), record.path, record.tool, record.state, record.outcome)
            self._hooks.emit(points.ENTRY_CREATED, created)

    def dispatched(self, turn: int, records: Iterable[CommandRecord]) -> None:
        """Every command of the turn is settled."""
        if self._hooks.observes(points.TURN_DISPATCHED):
            states = MappingProxyType({record.path: record.state for record in records})
            self._hooks.emit(points.TURN_DISPATCHED, TurnDispatched(self.at(turn), states))

    def concluded(self, turn: int, result: TurnResult, end: LoopEnd | None) -> None:
        """A turn has ended, and its loop if it has an end."""
        if self._hooks.observes(points.TURN_COMPLETED):
            ended = TurnCompleted(self.at(turn), result.status, result.reason, result.strikes, result.usage)
            self._hooks.emit(points.TURN_COMPLETED, ended)
        if end:
            self.ended(turn, end)

    def ended(self, turn: int, end: LoopEnd) -> None:
        """The loop has ended, by a verdict or from outside its turns."""
        if self._hooks.observes(points.LOOP_COMPLETED):
            over = LoopCompleted(self.at(turn), end.status, end.reason, end.summary)
            self._hooks.emit(points.LOOP_COMPLETED, over)
