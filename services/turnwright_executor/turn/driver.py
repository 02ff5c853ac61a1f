"""Drives a turn: performs one step after the other until nothing is left to do, or somebody has to decide.

The only place where a step is interrupted or fails. Whatever happens becomes part of the state, and the machine says
what follows: a loop that is aborted or has failed is ended by its last step.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from turnwright_executor.domain.endings import Ending
from turnwright_executor.turn.machine import TERMINAL, Action, Step, TurnState, next_step


class Steps(Protocol):
    """What carries out the steps of a turn, and moves its state."""

    async def perform(self, state: TurnState, step: Step) -> None:
        """Carry out one step. What it raises ends the turn, or leaves it, as `ending_of` says."""
        ...

    async def left(self, error: BaseException) -> None:
        """A step was stopped by this: keep what had ended by then."""
        ...

    def ending_of(self, error: Exception) -> Ending | None:
        """How the loop ends by an error; None: the turn is left where it is."""
        ...


class Driver:
    """Drives one claimed loop, or one command of a client."""

    def __init__(self, state: TurnState, steps: Steps) -> None:
        """Begin where the state says."""
        self._state = state
        self._steps = steps
        self._task: asyncio.Task[object] | None = None
        self._ending: Ending | None = None

    async def drive(self) -> Action:
        """Go on to the end: STOP, or PARK where a decision is awaited.

        Raises what leaves the turn where it is: another one may go on with it.
        """
        self._task = asyncio.current_task()
        try:
            while True:
                self._take_ending()
                step = next_step(self._state)
                await self._performed(step)
                if step.action in TERMINAL:
                    return step.action
        finally:
            self._task = None

    async def _performed(self, step: Step) -> None:
        try:
            await self._steps.perform(self._state, step)
        except asyncio.CancelledError as error:
            await self._steps.left(error)
            if not self._was_interrupted():
                raise
        except Exception as error:
            await self._steps.left(error)
            # An end that fails has no other end: whoever claims the run next tries again.
            ending = None if step.action is Action.END else self._steps.ending_of(error)
            if ending is None:
                raise
            self._state.ending = ending

    def interrupt(self, ending: Ending) -> None:
        """Stop what is under way, and end the loop. It is too late once the loop is being ended, or is over."""
        if self._ending or self._state.ending or self._state.is_over:
            return
        self._ending = ending
        if self._task:
            self._task.cancel()

    def _was_interrupted(self) -> bool:
        """Whether a cancellation was ours, and nobody else's beside it."""
        if self._ending is None or self._state.ending or self._task is None:
            return False
        self._state.ending = self._ending
        return self._task.uncancel() == 0

    def _take_ending(self) -> None:
        """Take an ending that stopped nothing: it came before the first step, or a step went on to its end."""
        if self._ending and not self._state.ending and not self._state.is_over:
            self._state.ending = self._ending
            if self._task and self._task.cancelling():
                self._task.uncancel()
