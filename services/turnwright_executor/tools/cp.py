"""cp: copy entries and files, one or many. Source: rows RU026, RU259."""

from __future__ import annotations

from turnwright_executor.tools.copying import Copying


class Cp(Copying):
    """Copies; a file as destination is proposed."""

    name = "cp"
