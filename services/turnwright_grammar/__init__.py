"""Model text to commands and edits: a pure library without I/O.

`read_reply` reads what a model wrote, in any of the formats models write, and `ReplyReader` does so
while it is being written; `commands_from_call` does the same for a vendor's native call; `apply_edit`
applies the body of a `set` to a text. None of them raises, whatever the model wrote.

Source: architecture section 5.
"""

from turnwright_core.patterns import unified_patch
from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit, apply_edits
from turnwright_grammar.edits.markers import Edits, EditSyntaxError, Operation, parse_body
from turnwright_grammar.native import commands_from_call
from turnwright_grammar.reader.streaming import ReplyReader
from turnwright_grammar.reader.walk import read_reply
from turnwright_grammar.reply import COMMANDS_MAX, Command, ReadWarning, Reply
from turnwright_grammar.tools import DEFAULT_TOOLS, resolve

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
