"""Parsing untrusted JSON of any length without blocking other threads.

The C parser holds the GIL until it is done: a few megabytes of brackets block every thread for a second, even if a
thread of its own parses them. Long texts are parsed by the same rules in Python, which lets other threads run; in an
event loop, do that in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from json import scanner
from typing import Any, Final

from msgspec.json import Decoder

JsonObject = dict[str, Any]
"""An object of JSON as it is read: its values are checked where they are used."""
JsonMapping = Mapping[str, Any]
"""One that is not changed."""

BRIEF_CHARS_MAX: Final = 64 * 1024
"""A text of this length is parsed within milliseconds, whatever it contains."""


_decode: Final = Decoder().decode


def parse_json(text: str) -> Any:
    """The value of a text. Raises ValueError, and RecursionError if it is nested too deeply."""
    if len(text) <= BRIEF_CHARS_MAX:
        try:
            return _decode(text)
        except ValueError:
            # The standard library is slower, and takes more: unpaired surrogates, NaN and infinity.
            return json.loads(text)
    decoder: Any = json.JSONDecoder()
    decoder.scan_once = scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]  # the stubs do not know it
    return decoder.decode(text)


def json_object(text: str) -> JsonObject | None:
    """The object that a text is; None for any other text, such as one that was cut off."""
    try:
        value = parse_json(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
