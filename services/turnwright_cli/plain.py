"""Text of strangers, made safe for a terminal.

Model output, file names and tool output may hold escape sequences that move the cursor, set the clipboard or hide what
a command really does.
"""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1: cursor, colours, clipboard, title
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks and overrides of direction: text that reads otherwise
    "\u2028\u2029\ufff9-\ufffb\ud800-\udfff]"  # line separators, annotation marks, lone surrogates
)
_BREAKS: Final = re.compile(r"[\t\n]+")


def safe_text(text: str) -> str:
    """The text without control characters; tabs and line feeds stay."""
    return _UNSAFE.sub("", text)


def safe_line(text: str, chars_max: int = 0) -> str:
    """The text as one line without control characters, cut to so many characters where a number is given."""
    line = _BREAKS.sub(" ", safe_text(text)).strip()
    return line if not chars_max or len(line) <= chars_max else f"{line[: max(1, chars_max - 3)]}..."


def shown_text(text: str) -> str:
    r"""The text with control characters written out (`\x1b`): for what a person decides on, where nothing may hide."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
