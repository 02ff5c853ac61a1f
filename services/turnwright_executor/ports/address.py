"""How a run is named wherever the executor asks for one."""

from __future__ import annotations

from turnwright_core.values import frozen


@frozen
class RunAddress:
    """How a run is named: project and alias."""

    project: str
    run: str
