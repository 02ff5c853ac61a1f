"""What a turn tells its watchers while it goes on, none of which is stored."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from msgspec import Struct

from turnwright_core.chat.deltas import Delta
from turnwright_core.entries import Cursor
from turnwright_core.runs import Usage


class Activity(IntEnum):
    """What a turn is doing; the numbers are those of `RunProgress.Phase`."""

    THINKING = 1
    PROCESSING = 2
    RETRYING = 3


class StreamBegan(Struct, frozen=True):
    """The model begins to answer."""


class StreamEnded(Struct, frozen=True):
    """The answer is complete."""

    finish: str
    usage: Usage


class StreamBroke(Struct, frozen=True):
    """The answer ended before its end; `reason` is `word:code`."""

    reason: str


StreamEvent = StreamBegan | Delta | StreamEnded | StreamBroke


class Publisher(Protocol):
    """The watchers of a run. Nobody is waited for but by `caught_up`."""

    def progress(self, activity: Activity, turn: int, detail: str, wait_s: float = 0.0) -> None:
        """Something goes on; `wait_s` are the seconds until it goes on again."""
        ...

    def stream(self, turn: int, event: StreamEvent) -> None:
        """The model's answer moves on."""
        ...

    async def caught_up(self, cursor: Cursor) -> None:
        """Wait a moment until what is stored up to there is told, so that what is published next follows it."""
        ...

    async def ended(self, paths: Sequence[str]) -> None:
        """Wait until somebody has ended one of these growing entries. Raises TurnwrightError when the run has ended."""
        ...
