"""The driver of a turn: performs one step after the other until nothing is left to do, or a decision is needed.

It is the only place that handles an interrupted or failed step. Whatever happens becomes part of the state, and the
state machine says what follows: an aborted or failed loop is ended by its last step, like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, Protocol

from turnwright_executor.domain.endings import Ending
from turnwright_executor.turn.machine import Action, Step, TurnState, next_step
from turnwright_executor.turn.turn_line import command_span
from turnwright_kit.telemetry import OpenBlock, is_on, span

_EFFECT: Final = frozenset({Action.MARK, Action.PERFORM, Action.SETTLE})
"""Steps from the mark of an effect to its result. Whoever stops between them does not know if it happened."""


class Steps(Protocol):
    """Performs the steps of a turn, and advances its state."""

    def perform(self, state: TurnState, step: Step) -> Awaitable[None]:
        """Perform one step, except STOP. An exception ends the turn, or leaves it, as `ending_of` says."""

    async def save_on_stop(self, error: BaseException) -> None:
        """A step was stopped by this exception: keep the results so far."""

    def ending_of(self, error: Exception) -> Ending | None:
        """The ending for an error; None: the turn is left as it is."""


class Driver:
    """Drives one claimed loop, or one command of a client."""

    def __init__(self, state: TurnState, steps: Steps) -> None:
        self._state = state
        self._steps = steps
        self._task: asyncio.Task[object] | None = None
        self._ending: Ending | None = None
        self._is_leaving = False
        self._step: Step | None = None

    async def drive(self) -> Action:
        """Run to the end: STOP, or PARK if a decision is awaited.

        Raises what leaves the turn as it is, so that another owner may continue.
        """
        self._task = asyncio.current_task()
        try:
            while True:
                if self._ending:
                    self._take_ending(self._ending)
                step = self._step = next_step(self._state)
                if step.action is Action.STOP:
                    return step.action
                try:
                    with self._span(step):
                        step = await self._perform(step)
                except (Exception, asyncio.CancelledError) as error:
                    await self._steps.save_on_stop(error)
                    if not self._ends_with(error):
                        raise
                if step.action is Action.PARK:
                    return step.action
        finally:
            self._task = self._step = None

    def _span(self, step: Step) -> OpenBlock:
        if step.path and is_on():
            return command_span(self._state.records, step.path, self._state.turn)
        return span(step.action)

    async def _perform(self, step: Step) -> Step:
        """Perform a step, and those of the same command that follow it. Returns the last one."""
        while True:
            if self._is_leaving:
                await self._leave_before(step)
            await self._steps.perform(self._state, step)
            if not step.path or step.action is Action.PARK or self._ending:
                return step
            following = next_step(self._state)
            if following.path != step.path:
                return step
            step = self._step = following

    async def _leave_before(self, step: Step) -> None:
        """Cancel the task, unless the step belongs to an effect in progress."""
        if step.action not in _EFFECT and self._task:
            self._task.cancel()
            # It is cancelled here: a step may end without waiting for anything, and the next one may be a mark.
            await asyncio.sleep(0)

    def _ends_with(self, error: BaseException) -> bool:
        """Whether the loop ends because of this exception; else it is left as it is."""
        if isinstance(error, asyncio.CancelledError):
            return self._was_interrupted()
        # If the end itself fails there is no other: the next owner tries again.
        if self._step and self._step.action is not Action.END and isinstance(error, Exception):
            self._state.ending = self._steps.ending_of(error)
            return self._state.ending is not None
        return False

    def interrupt(self, ending: Ending) -> None:
        """Stop the step in progress, and end the loop. No effect once the loop is being ended."""
        if self._ending or self._state.ending or self._state.is_over:
            return
        self._ending = ending
        if self._task:
            self._task.cancel()

    def stop_after_effect(self) -> bool:
        """Whether an effect is in progress; then the driver's task is cancelled once its result is known."""
        self._is_leaving = self._step is not None and self._step.action in _EFFECT
        return self._is_leaving

    def _was_interrupted(self) -> bool:
        """Whether a cancellation was ours, and nobody else's as well."""
        if self._ending is None or self._state.ending or self._task is None:
            return False
        self._state.ending = self._ending
        return self._task.uncancel() == 0

    def _take_ending(self, ending: Ending) -> None:
        """Use an ending that stopped nothing: it came before the first step, or the step ran to its end."""
        if not self._state.ending and not self._state.is_over:
            self._state.ending = ending
            if self._task and self._task.cancelling():
                self._task.uncancel()
