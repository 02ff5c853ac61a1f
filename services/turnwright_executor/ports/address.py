"""How a run is named wherever the executor asks for one."""

from __future__ import annotations

from msgspec import Struct


class RunAddress(Struct, frozen=True):
    """How a run is named: project and alias."""

    project: str
    run: str
