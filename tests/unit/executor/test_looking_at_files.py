"""Who waits for a project to be read is told so, and how far it is."""

from __future__ import annotations

import asyncio

import pytest
from turnwright_values.types import CallStyle, Mode, TurnRequest

from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.workspaces import Scan, SeenFile
from turnwright_executor.turn.loop_steps import TurnOpener
from turnwright_executor.turn.project_files import FileSync


class LargeProject:
    """Is not done with its files before somebody was told of them."""

    def __init__(self, told: asyncio.Event) -> None:
        self.files = {f"{number}.txt": SeenFile("", 0) for number in range(1200)}
        self._told = told

    async def scan(self, _doubtful=()) -> Scan:
        await self._told.wait()
        return Scan((), ())


class Watchers:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.told = asyncio.Event()

    def warn(self, text: str) -> None:
        self.texts.append(text)
        self.told.set()


@pytest.mark.asyncio
async def test_a_project_that_takes_long_to_read_is_told_of():
    watchers = Watchers()
    known = {f"{number}.txt": "" for number in range(1200)}
    files = FileSync(LargeProject(watchers.told), known)
    request = TurnRequest("m", "scripted/m", 1000, 0.0, (), CallStyle.TAGS, mode=Mode.ACT)
    opener = TurnOpener(None, RunAddress("p", "r"), None, request, files, None, watchers, slow_s=0.01)
    assert await opener.turn_start()
    assert watchers.texts[0] == "Looking at the files of the project (1,200 so far) ..."
