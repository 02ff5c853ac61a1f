"""A reply as it comes: what is left of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from turnwright_values.provider import Finish
from turnwright_values.types import Cursor, Model, Turn, TurnRequest

from turnwright_core.chat.deltas import AppendContent
from turnwright_core.model_calls import GeneratePart
from turnwright_executor.ports.models import Models
from turnwright_executor.ports.publishing import Activity, StreamEvent
from turnwright_executor.turn.generation import Draft, Generation
from turnwright_executor.turn.recording import reply_reader
from turnwright_executor.turn.unsaved import UnsavedState


def test_a_turn_keeps_the_calls_that_were_not_made_and_nothing_else():
    unsaved = UnsavedState(1, Draft(["a"], finish="stop", unmade_calls=4, turn=6))
    assert unsaved.begin_reply(6) == Draft(unmade_calls=4, turn=6)
    assert unsaved.begin_reply(7) == Draft(turn=7)


class Watchers:
    """Who is told of a turn."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.progresses: list[tuple[Activity, str]] = []
        self.warned = asyncio.Event()

    def progress(self, activity: Activity, turn: int, detail: str, wait_s: float = 0.0) -> None:
        del turn, wait_s
        self.progresses.append((activity, detail))

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        if len(self.warnings) == 2:
            self.warned.set()

    def stream(self, turn: int, event: StreamEvent) -> None:
        """Nothing looks at it here."""

    async def caught_up(self, cursor: Cursor) -> None:
        """Nothing waits for it here."""

    async def ended(self, paths: Sequence[str]) -> None:
        """Nothing streams here."""


class Silent(Models):
    """A model that says nothing before people were told of it twice."""

    def __init__(self, told: asyncio.Event) -> None:
        self._told = told

    def generate(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[GeneratePart]]:
        return self._stream()

    @asynccontextmanager
    async def _stream(self) -> AsyncIterator[AsyncIterator[GeneratePart]]:
        async def parts() -> AsyncIterator[GeneratePart]:
            await self._told.wait()
            yield AppendContent("Done.")
            yield Finish("stop", None, "m", cut=False)

        yield parts()


@pytest.mark.asyncio
async def test_people_are_told_of_a_vendor_that_sends_nothing_and_no_more_once_it_speaks():
    watchers, draft = Watchers(), Draft()
    generation = Generation(Silent(watchers.warned), 1000, time.monotonic, partial(reply_reader, 9, ()), silent_s=0.01)
    turn = Turn(1, 1, TurnRequest("m", "openai/m", 1000, 0.0, ()))

    async def again() -> None:
        raise AssertionError("nothing was lost")

    await generation.run(
        watchers, turn, Model("m", "openai/m"), (), 0, lambda: draft, again, lambda: None, limits_cost=False
    )
    assert draft.text == "Done."
    told = [text.partition(". ")[0] for text in watchers.warnings]
    assert told[:2] == ["openai/m has sent nothing for 0.01 s", "openai/m has sent nothing for 0.02 s"]
    # A machine that stalls once it has spoken begins to count anew.
    assert set(told[2:]) <= {told[0]}
    silent = [(Activity.THINKING, f"openai/m, silent for {seconds} s") for seconds in (0.01, 0.02)]
    assert watchers.progresses[:3] == [(Activity.THINKING, "openai/m"), *silent]
