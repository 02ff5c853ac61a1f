"""Where in the life of a project something happens."""

from __future__ import annotations

from msgspec import Struct


class RunAddress(Struct, frozen=True):
    """How a run is named: project and alias."""

    project: str
    run: str


class TurnAddress(Struct, frozen=True):
    """One turn: its project and run by name, its loop by sequence, its number in the run (from 1)."""

    project: str = ""
    run: str = ""
    loop: int = 0
    turn: int = 0
