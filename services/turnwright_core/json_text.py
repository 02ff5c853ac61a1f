"""JSON that somebody else wrote, however long it is.

The standard parser does not let go of the interpreter before it is done: a few megabytes of brackets hold every thread
for a second, also where a thread of its own parses them. Long texts are parsed by the same rules in Python, which lets
others run in between; whoever parses in an event loop does that in a thread.
"""

from __future__ import annotations

import json
from json import scanner
from typing import Any, Final

BRIEF_CHARS_MAX: Final = 64 * 1024
"""A text of so many characters is parsed within milliseconds, whatever it holds."""


def parse_json(text: str) -> Any:
    """The value of a text. Raises ValueError, and RecursionError for one that is nested too deeply."""
    if len(text) <= BRIEF_CHARS_MAX:
        return json.loads(text)
    decoder: Any = json.JSONDecoder()
    decoder.scan_once = scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]  # the stubs do not know it
    return decoder.decode(text)
