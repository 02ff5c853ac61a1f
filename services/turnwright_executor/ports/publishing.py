"""The port to watchers: what a turn publishes while it runs. None of it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from msgspec import Struct
from turnwright_values.types import Cursor, Usage

from turnwright_core.chat.deltas import Delta, PartDelta


class Activity(IntEnum):
    """The activity of a turn; the numbers are those of `RunProgress.Phase`."""

    THINKING = 1
    PROCESSING = 2
    RETRYING = 3
    WAITING = 4


class StreamBegan(Struct, frozen=True):
    """The answer has begun."""


class StreamEnded(Struct, frozen=True):
    """The answer is complete."""

    finish: str
    usage: Usage


class StreamBroke(Struct, frozen=True):
    """The answer was interrupted; `reason` is `word:code`."""

    reason: str


class StreamGrew(Struct, frozen=True):
    """An increment, and what it comes to for who reads the reply in parts."""

    delta: Delta | None
    """None: nothing but parts, at the end."""
    parts: Sequence[PartDelta]


StreamEvent = StreamBegan | Delta | StreamGrew | StreamEnded | StreamBroke


class Publisher(Protocol):
    """The watchers of a run. Only `caught_up` and `ended` wait."""

    def progress(self, activity: Activity, turn: int, detail: str, wait_s: float = 0.0) -> None:
        """Progress. `wait_s` are the seconds until a retry."""

    def warn(self, text: str) -> None:
        """A notice for people, which is not stored."""

    def stream(self, turn: int, event: StreamEvent) -> None:
        """An event of the model's streaming answer."""

    async def caught_up(self, cursor: Cursor) -> None:
        """Wait briefly until the stored changes up to `cursor` are published, so that what comes next follows them."""

    async def ended(self, paths: Sequence[str]) -> None:
        """Wait until somebody has ended one of these streaming entries. Raises TurnwrightError if the run has ended."""
