"""Standard output while services are embedded in a command: what plugins print goes into the log."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator, Iterable
from typing import IO, Final, cast

from turnwright_kit.logs import get_logger

LINE_CHARS_MAX: Final = 8192
"""A longer line is logged in parts."""

_log = get_logger("plugins")


class LoggedLines:
    """In the place of `sys.stdout`: each line that is written to it is logged. Everything else is that of `stream`."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        if len(self._begun) > LINE_CHARS_MAX:
            lines.append(self._begun)
            self._begun = ""
        for line in filter(None, lines):
            _log.info("line_printed", text=line)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextlib.contextmanager
def logged_prints() -> Generator[None, None, None]:
    """For the duration of the block; the command itself writes to `own_stdout()`."""
    with contextlib.redirect_stdout(cast("IO[str]", LoggedLines(own_stdout()))):
        yield


def own_stdout() -> IO[str]:
    """The stream that answers are written to."""
    return sys.stdout.stream if isinstance(sys.stdout, LoggedLines) else sys.stdout
