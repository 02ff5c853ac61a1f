"""Addresses of runs and turns."""

from __future__ import annotations

from msgspec import Struct


class RunAddress(Struct, frozen=True):
    """Address of a run: project and alias."""

    project: str
    run: str


class TurnAddress(Struct, frozen=True):
    """Address of a turn: project and run by name, loop by sequence, number in the run (from 1)."""

    project: str = ""
    run: str = ""
    loop: int = 0
    turn: int = 0
