"""Titles of runs: one line, without characters that people do not see."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from turnwright_core.checks import check_chars, invalid

TITLE_CHARS_MAX: Final = 200
"""Maximum length of the title of a run, in code points."""

_MARKUP: Final = re.compile(r"<[^<>]{0,200}>|[<>`]|\*{2,3}|(?<=\])\([^()]{0,2000}\)|[\[\]]")
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_QUOTES: Final = " \t\"'\u201c\u201d\u2018\u2019\u201e\u00ab\u00bb*_"


def beginning_of(prompt: str) -> str:
    """The title of a run by its first prompt."""
    return " ".join(prompt[: TITLE_CHARS_MAX * 2].split())[:TITLE_CHARS_MAX]


def title_in(reply: str) -> str:
    """The title that a model has answered, without markup; empty if there is none."""
    for line in reply[: TITLE_CHARS_MAX * 20].splitlines():
        plain = _MARKUP.sub("", one_line(_ESCAPE.sub("", line))).lstrip("#>- ").strip(_QUOTES)
        plain = one_line(re.sub(r"^title *: *", "", plain, flags=re.IGNORECASE).strip(_QUOTES))
        if plain:
            return plain[:TITLE_CHARS_MAX].rstrip()
    return ""


def check_title(field: str, title: str) -> None:
    """Refuse what is no title. Raises INVALID_FIELD, LIMIT_EXCEEDED."""
    check_chars(field, title, TITLE_CHARS_MAX)
    if title != one_line(title):
        message = f"{field} must be one line, without control characters and without space around it."
        raise invalid(field, message)


def one_line(text: str) -> str:
    """The text on one line: control, formatting and other unseen characters (category C) are left out."""
    seen = (" " if char.isspace() else char for char in text if char.isspace() or unicodedata.category(char)[0] != "C")
    return " ".join("".join(seen).split())
