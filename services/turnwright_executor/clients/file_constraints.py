"""`get` of a client with `persist`: adds a file constraint for the path, of kind `readonly` if that flag is given.

The constraint belongs to the project and outlives the run; the tool only changes the run's view. Source: rows RU118,
RU228.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_core.checks import invalid
from turnwright_core.text import scheme_of
from turnwright_executor.domain.policy import is_flagged
from turnwright_grammar.reply import Command

PERSIST: Final = "persist"
_FLAGS: Final = frozenset({PERSIST, "readonly"})


def kept_file(command: Command) -> tuple[Command, FileConstraint | None]:
    """The command without these attributes, and the constraint that it asks for.

    Raises INVALID_FIELD if the path does not name files.
    """
    if command.name != "get" or not is_flagged(command, PERSIST):
        return command, None
    path = command.attributes.get("path", "").strip()
    if scheme_of(path):
        message = f"Only files are kept by the project; {path} is an entry. Call without `persist`."
        raise invalid("attributes.path", message)
    rest = {name: value for name, value in command.attributes.items() if name not in _FLAGS}
    kind = FileConstraintKind.READONLY if is_flagged(command, "readonly") else FileConstraintKind.ADD
    return replace(command, attributes=rest), FileConstraint(path, kind)
