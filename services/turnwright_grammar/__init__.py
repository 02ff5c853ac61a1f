"""Model text to commands and edits: a pure library without I/O.

`read_reply` reads what a model wrote, in any of the formats models write, and `ReplyReader` does so
while it is being written; `commands_from_call` does the same for a vendor's native call; `apply_edit`
applies the body of a `set` to a text. None of them raises, whatever the model wrote.

Importing this package loads what a command is; what reads and edits is loaded when it is first asked for.
Source: architecture section 5.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from turnwright_grammar.reply import COMMANDS_MAX, Command, ReadWarning, Reply

if TYPE_CHECKING:
    from turnwright_core.patterns import unified_patch
    from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit, apply_edits
    from turnwright_grammar.edits.markers import Edits, EditSyntaxError, Operation, parse_body
    from turnwright_grammar.native import commands_from_call
    from turnwright_grammar.reader.parser import read_reply
    from turnwright_grammar.reader.streaming import ReplyReader
    from turnwright_grammar.tools import DEFAULT_TOOLS, resolve

_WHERE: Final = {
    "unified_patch": "turnwright_core.patterns",
    **dict.fromkeys(("EditConflict", "EditResult", "apply_edit", "apply_edits"), "turnwright_grammar.edits.apply"),
    **dict.fromkeys(("Edits", "EditSyntaxError", "Operation", "parse_body"), "turnwright_grammar.edits.markers"),
    "commands_from_call": "turnwright_grammar.native",
    "ReplyReader": "turnwright_grammar.reader.streaming",
    "read_reply": "turnwright_grammar.reader.parser",
    **dict.fromkeys(("DEFAULT_TOOLS", "resolve"), "turnwright_grammar.tools"),
}
"""Names that are loaded when they are asked for, by their modules."""


def __getattr__(name: str) -> Any:
    """A name of this package at its first use (PEP 562)."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found


__all__ = [
    "COMMANDS_MAX",
    "DEFAULT_TOOLS",
    "Command",
    "EditConflict",
    "EditResult",
    "EditSyntaxError",
    "Edits",
    "Operation",
    "ReadWarning",
    "Reply",
    "ReplyReader",
    "apply_edit",
    "apply_edits",
    "commands_from_call",
    "parse_body",
    "read_reply",
    "resolve",
    "unified_patch",
]
