"""Characters that look alike: typographic quotes and dashes, full-width forms, composed and decomposed letters."""

from __future__ import annotations

from typing import Final
from unicodedata import normalize

# Curly quotes, the dashes from HYPHEN to EM DASH and MINUS, and full-width forms, as a keyboard has them.
PLAIN: Final = str.maketrans(
    dict(zip("\u2018\u2019\u201c\u201d\u2010\u2011\u2012\u2013\u2014\u2212", "''\"\"------", strict=True))
    | {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)}
)


def composed(text: str) -> str:
    """The text with letters and their accents as one character each (NFC)."""
    return text if text.isascii() else normalize("NFC", text)


def letters_of(line: str) -> str:
    """A line without blanks, as a keyboard writes it."""
    return "".join(composed(line).translate(PLAIN).split())
