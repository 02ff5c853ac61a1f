"""Texts given to a command: as an argument, on standard input (`-`), or in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from turnwright_cli.exit_codes import usage

STDIN: Final = "-"


def given_text(argument: str, what: str, bytes_max: int, *, empty: str = "", long: str = "") -> str:
    """A text from the command line; `-` reads standard input. `empty` and `long` are the advice for such texts.

    Raises FailureError for an empty text, one that is too long, and one that is not text.
    """
    data = sys.stdin.buffer.read(bytes_max + 1) if argument == STDIN else argument.encode()
    return _checked(data, what, bytes_max, empty, long)


def text_in(file: Path, what: str, bytes_max: int, *, may_be_empty: bool = False) -> str:
    """The text in a file. Raises FailureError as `given_text`, and for a file that cannot be read."""
    try:
        with file.open("rb") as stream:
            data = stream.read(bytes_max + 1)
    except OSError as error:
        raise usage(f"The {what} {str(file)!r} cannot be read: {error.strerror}.") from None
    return "" if may_be_empty and not data.strip() else _checked(data, what, bytes_max)


def _checked(data: bytes, what: str, bytes_max: int, empty: str = "", long: str = "") -> str:
    if len(data) > bytes_max:
        raise usage(f"The {what} is longer than {bytes_max} bytes.{long and f' {long}'}")
    text = decoded(data, f"The {what}")
    if not text.strip():
        raise usage(f"The {what} is empty.{empty and f' {empty}'}")
    return text


def decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise usage(f"{what} is not UTF-8 text (byte {error.start}).") from None
