"""How a run is named wherever the executor asks for one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunAddress:
    """How a run is named: project and alias."""

    project: str
    run: str
