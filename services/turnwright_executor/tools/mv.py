"""mv: copy, then remove the source. Source: row RU027; architecture 3."""

from __future__ import annotations

from turnwright_executor.tools.copying import Copying


class Mv(Copying):
    """Moves; a file at either end is proposed."""

    name = "mv"
    moves = True
