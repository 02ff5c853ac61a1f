"""Encodings of project files: bytes as text, and text as bytes.

A file is UTF-8, or UTF-16 or UTF-32 if it begins with their byte order mark. That mark is no part of its text, and is
written again. The hash of such a file is that of its text in UTF-8, so it is comparable with the hash of an entry.
"""

from __future__ import annotations

import codecs
import re
from contextlib import suppress
from typing import Final

from msgspec import Struct

FOREIGN: Final = "foreign_encoding"
"""Attribute of the record of a command that failed because of the encoding of a file: which one that likely is."""

UNKNOWN: Final = "unknown"
"""The name of an encoding that cannot be told from the text."""

# UTF-32 first: its mark in little-endian order begins with that of UTF-16.
_MARKS: Final = {
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
}
_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Bytes that no text in a legacy encoding contains."""
_KANA: Final = re.compile("[\u3041-\u30fa]")
_JAPANESE: Final = (("Shift-JIS", "cp932"), ("EUC-JP", "euc_jp"))
_WESTERN_SHARE: Final = 4
"""In Western languages less than one byte in so many is an accented letter; elsewhere most letters are above ASCII."""


class MarkedText(Struct, frozen=True):
    """The text after a byte order mark, and the encoding that the mark stands for."""

    text: str
    encoding: str


def marked_text(data: bytes) -> MarkedText | None:
    """The text of a file in UTF-16 or UTF-32; None for any other, also for binary data that begins like one."""
    for encoding, mark in _MARKS.items():
        if data.startswith(mark):
            with suppress(UnicodeDecodeError):
                text = data[len(mark) :].decode(encoding)
                if "\0" not in text:
                    return MarkedText(text, encoding)
    return None


def utf8_text(data: bytes) -> str | None:
    """The text of a file in UTF-8; None for any other, and for one with NUL, which binary files contain."""
    if b"\0" not in data:
        with suppress(UnicodeDecodeError):
            return data.decode()
    return None


def text_in(data: bytes) -> str | None:
    """The text of a file in an encoding that is read here; None for any other."""
    marked = marked_text(data)
    return marked.text if marked else utf8_text(data)


def encoded(text: str, encoding: str) -> bytes:
    """The bytes of a text, with the mark of its encoding; an empty one is UTF-8, whose mark is part of the text."""
    return _MARKS[encoding] + text.encode(encoding) if encoding else text.encode()


def foreign_encoding(data: bytes) -> str:
    """The likely encoding of a text that is in none of the above: `unknown` if that is open; empty if it is binary."""
    if _NO_TEXT.search(data):
        return ""
    for name, codec in _JAPANESE:
        with suppress(UnicodeDecodeError):
            if _KANA.search(data.decode(codec)):
                return name
    high = len(data.translate(None, bytes(range(0x80))))
    return "Windows-1252" if high * _WESTERN_SHARE < len(data) else UNKNOWN
