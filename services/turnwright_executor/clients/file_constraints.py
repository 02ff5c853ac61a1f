"""A client's `get` that the project remembers: `persist` makes a constraint of the path, `readonly` says of which kind.

The constraint is the project's and outlives the run; what the command does to the run's view is the tool's own affair.
Source: rows RU118, RU228.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from turnwright_core.checks import invalid
from turnwright_core.constraints import ADD, READONLY, FileConstraint
from turnwright_core.text import scheme_of
from turnwright_executor.domain.policy import is_flagged
from turnwright_grammar import Command

PERSIST: Final = "persist"
_FLAGS: Final = frozenset({PERSIST, "readonly"})


def kept_file(command: Command) -> tuple[Command, FileConstraint | None]:
    """The command without what is not for its tool, and the constraint that it asks for.

    Raises INVALID_FIELD where something else than files is to be kept.
    """
    if command.name != "get" or not is_flagged(command, PERSIST):
        return command, None
    path = command.attributes.get("path", "").strip()
    if scheme_of(path):
        message = f"Only files are kept by the project; {path} is an entry. Call without `persist`."
        raise invalid("attributes.path", message)
    rest = {name: value for name, value in command.attributes.items() if name not in _FLAGS}
    kind = READONLY if is_flagged(command, "readonly") else ADD
    return replace(command, attributes=rest), FileConstraint(path, kind)
