"""Untrusted text, made safe for a terminal.

Model output, file names and tool output may contain escape sequences that move the cursor, set the clipboard or hide
what a command really does.
"""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line feed, DEL, C1: cursor, colours, clipboard, title
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks and overrides of direction: text that reads otherwise
    "\u2028\u2029\ufff9-\ufffb\ud800-\udfff]"  # line separators, annotation marks, lone surrogates
)
_UNSEEN: Final = re.compile(
    "[\xad\u034f\u115f\u1160\u180e\u200b\u200c\u2060-\u206f\u2800\u3164\ufeff\uffa0\U000e0000-\U000e0fff]"
    "|(?<![^\x00-\x7f])\u200d|\u200d(?![^\x00-\x7f])"  # a joiner belongs between the parts of an emoji
)
"""Invisible characters: they make two different texts look the same."""
_BREAKS: Final = re.compile(r"[\t\n]+")


def is_utf8(text: str) -> bool:
    """Whether the bytes of an argument or a path are UTF-8: Python makes a lone surrogate of each that is not."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def safe_text(text: str) -> str:
    """The text without control characters; tabs and line feeds stay."""
    return _UNSAFE.sub("", text)


def safe_line(text: str, chars_max: int = 0) -> str:
    """The text as one line without control characters, truncated to `chars_max` characters if that is given."""
    line = _BREAKS.sub(" ", safe_text(text)).strip()
    return line if not chars_max or len(line) <= chars_max else f"{line[: max(1, chars_max - 3)]}..."


def shown_text(text: str) -> str:
    r"""The text with control and invisible characters escaped (`\x1b`), because a person decides by it."""
    return _UNSEEN.sub(_written_out, _UNSAFE.sub(_written_out, text))


def shown_line(text: str, chars_max: int = 0) -> str:
    r"""`shown_text` as one line (`\n`, `\t`). If `chars_max` truncates it, it shows its full length."""
    line = shown_text(text).replace("\n", "\\n").replace("\t", "\\t")
    if not chars_max or len(line) <= chars_max:
        return line
    return f"{line[:chars_max]}... ({len(text):,} characters)"


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
